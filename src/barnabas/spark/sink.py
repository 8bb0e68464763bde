"""DataFrames into topics, with the columns of Spark's own Kafka sink.

A writer is made on the driver, twice for every micro-batch: it checks the columns and asks nobody. Its ``write`` runs
on the executors, once for each task. At least once: a task that Spark runs again writes its rows again. Within an
attempt nothing is stored twice, see ``producer``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from barnabas.spark.options import SinkOptions, parse_sink
from barnabas.spark.task_writer import Counts, delivery_of, producer_settings, write_batches

__all__ = ["SinkColumnError", "StreamArrowWriter", "Written", "check_columns", "writer"]

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 has no class for it, but goes by this one's second base when it decides between Arrow and rows."""


_HEADERS_TEXT = "array<struct<key: string, value: binary>>"


class SinkColumnError(ValueError):
    """A column that is missing or of the wrong type. The text names it and says what would be right."""


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    counts: Counts


def writer(
    options: Mapping[str, str], schema: StructType, *, streaming: bool
) -> DataSourceWriter | DataSourceStreamWriter:
    """Raises SparkOptionError or SinkColumnError."""
    parsed = parse_sink(options)
    delivery_of(parsed)
    producer_settings(parsed.client, parsed.acks)
    check_columns(schema, parsed)
    return _StreamWriter(parsed) if streaming else _BatchWriter(parsed)


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
    if "headers" in kinds and not _are_headers(kinds["headers"]):
        raise SinkColumnError(f"column 'headers' is {kinds['headers'].simpleString()}: {_HEADERS_TEXT} is right")


def _check_kind(kinds: Mapping[str, DataType], name: str, right: tuple[type[DataType], ...], text: str) -> None:
    kind = kinds.get(name)
    if kind is not None and not isinstance(kind, right):
        raise SinkColumnError(f"column '{name}' is {kind.simpleString()}: {text} is right")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, (BinaryType, StringType))
    )


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_batches(self._options, iterator))


class _StreamWriter(StreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_batches(self._options, iterator))
