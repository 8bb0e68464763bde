"""What Spark talks to when it reads: a reader for batch queries and one for streams.

Spark makes a reader anew in every process that needs one, so nothing is connected before it is asked for. A stream has
one planning process per run; its reader may remember things from batch to batch, but not over a restart: what must
last goes into the offsets.
"""
# ruff: noqa: N802 -- the names of the methods are Spark's

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.client.wire.data import OffsetRange
from barnabas.client.wire.errors import DataLoss
from barnabas.spark import batch_plan
from barnabas.spark.batch_plan import HINT, Position, View, from_json, to_json
from barnabas.spark.cluster import Cluster
from barnabas.spark.options import SourceOptions, SparkOptionError, parse_source
from barnabas.spark.progress import Publisher

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.spark.filters import Condition
    from barnabas.spark.task_reader import ReadSettings

HAS_RATE_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
"""From Spark 4.2 on."""

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The process that Spark asks to take filters in; it exists only where the session allows that."""

_log = logging.getLogger("barnabas.spark")


def schema(include_headers: bool) -> StructType:
    """The columns of Spark's own Kafka source."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


def schema_of(options: Mapping[str, str]) -> StructType:
    """Raises SparkOptionError for options that neither a stream nor a batch query can have: nobody knows yet which."""
    try:
        parsed = parse_source(options, streaming=True)
    except SparkOptionError:
        parsed = parse_source(options, streaming=False)
    return schema(parsed.include_headers)


def reader(options: Mapping[str, str], given: StructType) -> DataSourceReader:
    parsed = parse_source(options, streaming=False)
    _check_schema(given, parsed)
    return FilteringReader(parsed) if _takes_filters() else BatchReader(parsed)


def stream_reader(options: Mapping[str, str], given: StructType) -> DataSourceStreamReader:
    try:
        parsed = parse_source(options, streaming=True, has_rate_limits=HAS_RATE_LIMITS)
        _check_schema(given, parsed)
    except SparkOptionError as error:
        return RefusedStream(error)
    # Each of them imports what only one kind of Spark has.
    if HAS_RATE_LIMITS:
        from barnabas.spark.stream import StreamReader  # noqa: PLC0415

        return StreamReader(parsed)
    from barnabas.spark.legacy import LegacyStreamReader  # noqa: PLC0415

    return LegacyStreamReader(parsed)


def _check_schema(given: StructType, options: SourceOptions) -> None:
    wanted = schema(options.include_headers)
    if [(field.name, field.dataType) for field in given] != [(field.name, field.dataType) for field in wanted]:
        raise SparkOptionError(f"the schema is fixed and cannot be given: {wanted.simpleString()}")


def _takes_filters() -> bool:
    """A reader that takes filters is an error where the session does not allow them, and asking it is not possible."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    has_filters = hasattr(datasource, "Filter")
    return has_filters and (PUSHDOWN_WORKER in sys.modules or getattr(spec, "name", None) == PUSHDOWN_WORKER)


def read_settings(options: SourceOptions) -> ReadSettings:
    # Arrow is for those who read: the processes in which Spark plans a query start without it, and so in less time.
    from barnabas.spark.task_reader import ReadSettings  # noqa: PLC0415

    return ReadSettings(
        kafka=options.kafka,
        include_headers=options.include_headers,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_s=options.poll_timeout_s,
    )


def report_losses(losses: Sequence[str], options: SourceOptions) -> None:
    if losses and options.fail_on_data_loss:
        raise DataLoss("; ".join([*losses, HINT]))
    for loss in losses:
        _log.warning("%s; going on with what there is, for failOnDataLoss is false", loss)


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    # Spark makes a partition of its own where there is nothing to read.
    if not isinstance(partition.value, OffsetRange):
        return iter(())
    from barnabas.spark.task_reader import read_range  # noqa: PLC0415 -- as above

    return read_range(partition.value, read_settings(options))


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.conditions: list[Condition] = []

    def partitions(self) -> Sequence[InputPartition]:
        cluster = Cluster(self.options)
        try:
            found = self._narrowed(cluster, self._ranges(cluster))
        finally:
            cluster.close()
        options = self.options
        max_records = options.max_records_per_partition
        if max_records is None and options.min_partitions is None:
            max_records = batch_plan.DEFAULT_TASK_RECORDS
        pieces = batch_plan.split(found, min_partitions=options.min_partitions, max_records=max_records)
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.options)

    def _ranges(self, cluster: Cluster) -> list[OffsetRange]:
        view = cluster.view()
        cluster.check_there(view)
        starts = cluster.resolve(self.options.starting, view, is_start=True)
        ends = cluster.resolve(self.options.ending, view, is_start=False)
        found, losses = batch_plan.batch_ranges(starts, ends, view)
        report_losses(losses, self.options)
        return found

    def _narrowed(self, cluster: Cluster, found: list[OffsetRange]) -> list[OffsetRange]:
        return found


class FilteringReader(BatchReader):
    """For sessions with ``spark.sql.python.filterPushdown.enabled``."""

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        from barnabas.spark.filters import understand  # noqa: PLC0415 -- an older Spark has no filters to import

        self.conditions, left = understand(filters)
        return left

    def _narrowed(self, cluster: Cluster, found: list[OffsetRange]) -> list[OffsetRange]:
        from barnabas.spark.filters import earliest_time_ms, narrowed  # noqa: PLC0415 -- as above

        found = narrowed(found, self.conditions)
        time_ms = earliest_time_ms(self.conditions)
        if time_ms is None or time_ms <= 0 or not found:
            return found
        first = cluster.offsets_at(dict.fromkeys({each.partition for each in found}, time_ms))
        return [
            each._replace(start=max(each.start, first[each.partition]))
            for each in found
            if first[each.partition] >= 0  # nothing there is that young
        ]


class RefusedStream(DataSourceStreamReader):
    """Says what is wrong with the options when it is first asked something.

    Spark's planning process takes a reader that cannot be made for an error of its own, and tells that instead.
    """

    def __init__(self, error: SparkOptionError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self.error

    def latestOffset(self, *_: object) -> dict[str, Any]:
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self.error


class BaseStreamReader(DataSourceStreamReader):
    """What the readers for old and new Sparks share."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.cluster = Cluster(options)
        self._initial: Position | None = None
        self._publisher: Publisher | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Spark asks more than once, and must hear the same."""
        if self._initial is None:
            view = self.first_view()
            self.cluster.check_there(view)
            self._initial = Position(
                offsets=self.cluster.resolve(self.options.starting, view, is_start=True),
                topic_ids={topic: topic_id for topic, topic_id in view.topic_ids.items() if topic_id},
                query=self.new_query(),
                is_initial=True,
            )
        return to_json(self._initial)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = from_json(start), from_json(end)
        missing = batch_plan.without_begin(first, last)
        earliest = self.cluster.view().earliest if missing else {}
        return self.tasks(batch_plan.ranges(first, last, earliest))

    def tasks(self, found: list[OffsetRange]) -> Sequence[InputPartition]:
        pieces = batch_plan.split(
            found,
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        self.publish(from_json(end))

    def stop(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
        self.cluster.close()

    def first_view(self) -> View:
        return self.cluster.view()

    def new_query(self) -> str:
        return uuid.uuid4().hex

    def publish(self, done: Position) -> None:
        """Everything before ``done`` was processed."""
        if not self.options.publish_progress:
            return
        if self._publisher is None:
            group = self.options.group_id or f"{self.options.group_id_prefix}-{done.query}"
            _log.info("the progress of the query is published as group %s", group)
            self._publisher = Publisher(self.options.kafka, group)
        self._publisher.publish(done.offsets)

    def flush(self) -> None:
        if self._publisher is not None:
            self._publisher.flush()
