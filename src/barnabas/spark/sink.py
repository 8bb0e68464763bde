"""DataFrames into topics, with the columns of Spark's own Kafka sink.

A writer is made on the driver, twice for every micro-batch: it checks the columns and asks nobody. Its ``write`` runs
on the executors, once for each task. At least once: a task that Spark runs again writes its rows again. Within an
attempt nothing is stored twice, see ``producer``. Exactly once, where that is asked for: see ``exactly_once``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from barnabas.spark.client_settings import connect
from barnabas.spark.exactly_once.commit import Committer
from barnabas.spark.exactly_once.names import ExactlyOnceError, Origin
from barnabas.spark.exactly_once.options import check_kind
from barnabas.spark.exactly_once.task import TaskResult, write_transaction
from barnabas.spark.options import SinkOptions, parse_sink
from barnabas.spark.task_writer import Counts, delivery_of, producer_settings, write_batches

__all__ = ["BatchWriter", "Messages", "SinkColumnError", "StreamWriter", "Written", "check_columns", "writer"]

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 has no class for it, but goes by this one's second base when it decides between Arrow and rows."""


QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Properties that Spark gives the tasks of a stream."""

Messages: TypeAlias = Sequence[WriterCommitMessage | None]
"""Of the tasks; None for one that has failed."""

_SOURCE_TEXT = "struct<topic:string,partition:int,offset:bigint>"
_HEADERS_TEXT = "array<struct<key: string, value: binary>>"

_log = logging.getLogger("barnabas.spark")


class SinkColumnError(ValueError):
    """A column that is missing or of the wrong type. The text names it and says what would be right."""


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    counts: Counts


@dataclass
class WrittenOnce(WriterCommitMessage):
    """What a task wrote in a transaction that the driver is to end."""

    result: TaskResult


def writer(
    options: Mapping[str, str], schema: StructType, *, streaming: bool
) -> DataSourceWriter | DataSourceStreamWriter:
    """Raises SparkOptionError or SinkColumnError."""
    parsed = parse_sink(options)
    delivery_of(parsed)
    producer_settings(parsed.client, parsed.acks)
    check_columns(schema, parsed)
    check_kind(parsed.delivery, streaming=streaming)
    once = parsed.delivery.is_exactly_once
    sink: Sink = _ExactlyOnce(parsed, streaming=streaming) if once else _AtLeastOnce(parsed)
    return StreamWriter(sink) if streaming else BatchWriter(sink)


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """What the sink asks of a DataFrame. Columns that are not its own are left alone, as Spark's sink leaves them."""
    kinds = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds:
        found = ", ".join(kinds) or "none"
        raise SinkColumnError(f"column 'value' is missing: it becomes the record's value. There are: {found}")
    if options.topic is None:
        if "topic" not in kinds:
            raise SinkColumnError("column 'topic' is missing: add it, or set the option topic")
        _check_kind(kinds, "topic", (StringType,), "string")
    if options.include_timestamp:
        if "timestamp" not in kinds:
            raise SinkColumnError("column 'timestamp' is missing: the option includeTimestamp asks for it")
        _check_kind(kinds, "timestamp", (TimestampType,), "timestamp")
    for name in ("key", "value"):
        _check_kind(kinds, name, (StringType, BinaryType), "string or binary")
    _check_kind(kinds, "partition", (IntegerType,), "int")
    _check_source(kinds, options.delivery.source_column)
    if "headers" in kinds and not _are_headers(kinds["headers"]):
        raise SinkColumnError(f"column 'headers' is {kinds['headers'].simpleString()}: {_HEADERS_TEXT} is right")


def _check_kind(kinds: Mapping[str, DataType], name: str, right: tuple[type[DataType], ...], text: str) -> None:
    kind = kinds.get(name)
    if kind is not None and not isinstance(kind, right):
        raise SinkColumnError(f"column '{name}' is {kind.simpleString()}: {text} is right")


def _check_source(kinds: Mapping[str, DataType], name: str | None) -> None:
    if name is None:
        return
    kind = kinds.get(name)
    if kind is None or kind.simpleString() != _SOURCE_TEXT:
        found = "missing" if kind is None else kind.simpleString()
        remedy = f"struct(topic, partition, offset) as {name}"
        raise SinkColumnError(f"column '{name}' is {found}: {_SOURCE_TEXT} is right, as {remedy} makes it")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, (BinaryType, StringType))
    )


class Sink(Protocol):
    """What writers of batches and of streams do alike. Spark hands it to executors."""

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor."""

    def commit(self, messages: Messages, number: int | None) -> object:
        """On the driver, with the number of a stream's batch."""

    def abort(self, messages: Messages) -> None:
        """On the driver, also after a commit that failed."""


class _AtLeastOnce:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        return Written(write_batches(self._options, batches))

    def commit(self, messages: Messages, number: int | None) -> None:
        """Nothing is left to do."""

    def abort(self, messages: Messages) -> None:
        """What is written stays."""


class _ExactlyOnce:
    def __init__(self, options: SinkOptions, *, streaming: bool) -> None:
        self._options = options
        self._streaming = streaming
        self._run = uuid.uuid4().hex

    def write(self, batches: Iterable[pa.RecordBatch]) -> WrittenOnce:
        return WrittenOnce(write_transaction(self._options, batches, self._origin()))

    def _origin(self) -> Origin:
        context = TaskContext.get()
        query = (context.getLocalProperty(QUERY_ID) if context is not None else None) or ""
        application = self._options.delivery.application_id
        if not self._streaming:
            return Origin(application or self._run, query, self._options.delivery.batch_id)
        number = context.getLocalProperty(BATCH_ID) if context is not None else None
        if not query or number is None:
            raise ExactlyOnceError("the query's id and the batch's number are not known here")
        return Origin(application or query, query, int(number))

    def commit(self, messages: Messages, number: int | None) -> None:
        results = _results(messages)
        if not results:
            return
        origin = results[0].origin
        if any(each.origin != origin for each in results) or (self._streaming and origin.batch != number):
            raise ExactlyOnceError(f"tasks of different batches were to be committed as batch {number}")
        with connect(self._options.kafka) as client:
            outcome = Committer(client, origin.application).commit(origin, results)
        if outcome.status == "repeated":
            _log.warning("batch %s of %s was in the topic already", origin.batch, origin.application)

    def abort(self, messages: Messages) -> None:
        """Spark calls it after a commit that failed as well. That may have decided: the next commit finds out."""
        if all(message is not None for message in messages):
            return
        results = _results(messages)
        is_named = self._streaming or self._options.delivery.application_id is not None
        with connect(self._options.kafka) as client:
            if results:
                Committer(client, results[0].origin.application).abort(results)
            if not is_named:  # else another driver may be at work under this name
                Committer(client, self._run).abort_leftovers()


def _results(messages: Messages) -> list[TaskResult]:
    return [message.result for message in messages if isinstance(message, WrittenOnce)]


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort(messages)


class StreamWriter(StreamArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._sink.abort(messages)
