"""Records to be read again, in the order of their offsets: out of a topic, or out of a table that has them from one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.arrow.columns import read_columns
from barnabas.client.wire import Client
from barnabas.client.wire.admin import EARLIEST, LATEST, list_offsets
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.model.ids import TopicPartition
from barnabas.spark.tables.errors import TableError
from barnabas.spark.tables.readable import Readable, Rows
from barnabas.spark.tables.schema import TRACKED, has_offsets

WINDOW_OFFSETS = 200_000
"""So many offsets of a table are read and put in order in one go."""
FETCH = FetchLimits(max_wait_ms=500, max_bytes=8 << 20, partition_max_bytes=8 << 20, read_committed=True)

Bounds: TypeAlias = Mapping[TopicPartition, tuple[int, int]]


class Period(NamedTuple):
    """Milliseconds since 1970; what is None is open."""

    since_ms: int | None = None
    until_ms: int | None = None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose timestamp lies in it."""
        if self.since_ms is None and self.until_ms is None:
            return batch
        times = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        keep = pc.greater_equal(times, (self.since_ms or 0) * 1000)
        if self.until_ms is not None:
            keep = pc.and_(keep, pc.less(times, self.until_ms * 1000))
        return batch.filter(keep)


class Piece(NamedTuple):
    partition: TopicPartition
    batch: pa.RecordBatch
    next_offset: int
    """Where one would go on."""


def next_offset(batch: pa.RecordBatch) -> int:
    """Behind the last row."""
    return int(batch.column("offset")[-1].as_py()) + 1


def of_topic(client: Client, bounds: Bounds, period: Period) -> Iterator[Piece]:
    """Piece after piece, the partitions in turn: so they go on side by side, as they were written."""
    at = {partition: start for partition, (start, _) in bounds.items()}
    while at:
        for fetched in fetch(client, dict(at), FETCH):
            partition, start = fetched.partition, at[fetched.partition]
            if not len(fetched.records):
                continue
            stop = bounds[partition][1]
            read = read_columns(fetched, start, stop, headers=True, read_committed=True)
            del at[partition]  # to the end: a reply has a limit, and those asked last must get their turn
            at[partition] = read.next_offset
            if read.batch is not None:
                yield Piece(partition, period.of(read.batch), min(read.next_offset, stop))
        at = {partition: offset for partition, offset in at.items() if offset < bounds[partition][1]}


def bounds_of_topic(client: Client, topic: str, period: Period) -> dict[TopicPartition, tuple[int, int]]:
    """From the first record that may lie in the period to the end as it is now. Raises BrokerError."""
    partitions = [TopicPartition(topic, number) for number in sorted(client.topic(topic).partitions)]
    ends = list_offsets(client, dict.fromkeys(partitions, LATEST), read_committed=True)
    since = EARLIEST if period.since_ms is None else period.since_ms
    starts = list_offsets(client, dict.fromkeys(partitions, since))
    # An offset of -1 says that no record is that young.
    found = {p: (starts[p].offset if starts[p].offset >= 0 else ends[p].offset, ends[p].offset) for p in partitions}
    return {partition: (start, end) for partition, (start, end) in found.items() if start < end}


def after(bounds: Bounds, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
    """What is left of the bounds."""
    begun = {place: (max(start, reached.get(place, start)), end) for place, (start, end) in bounds.items()}
    return {place: (start, end) for place, (start, end) in begun.items() if start < end}


def of_table(table: Readable, bounds: Bounds, period: Period) -> Iterator[Piece]:
    columns = [name for name in ("key", "value", "headers", *TRACKED, "timestamp") if name in table.schema().names]
    at = {partition: start for partition, (start, _) in bounds.items()}
    since_us = None if period.since_ms is None else period.since_ms * 1000
    until_us = None if period.until_ms is None else period.until_ms * 1000
    while at:
        for partition, start in list(at.items()):
            end = min(start + WINDOW_OFFSETS, bounds[partition][1])
            rows = Rows(partition.topic, partition.partition, start, end, since_us, until_us)
            found = pa.Table.from_batches(table.read(columns, rows), _read_schema(table, columns))
            if found.num_rows:
                batches = found.sort_by("offset").combine_chunks().to_batches()
                for batch in batches:
                    yield Piece(partition, batch, end if batch is batches[-1] else next_offset(batch))
            at[partition] = end
        at = {partition: offset for partition, offset in at.items() if offset < bounds[partition][1]}


def bounds_of_table(table: Readable, topic: str | None) -> dict[TopicPartition, tuple[int, int]]:
    """Of what the table has of a topic, or of all its topics. Raises TableError."""
    if not has_offsets(table.schema()):
        raise TableError(f"the table {table.name} lacks one of the columns {', '.join(TRACKED)}: it has no order")
    covered = {key: found for key, found in table.state().total().items() if topic in (None, key.topic) and found}
    if not covered:
        raise TableError(f"the table {table.name} has nothing of topic {topic}" if topic else f"{table.name} is empty")
    return {key: (min(i.start for i in found), max(i.end for i in found)) for key, found in sorted(covered.items())}


def _read_schema(table: Readable, columns: list[str]) -> pa.Schema | None:
    first = next(iter(table.read(columns, Rows(start=-1, end=0))), None)
    return first.schema if first is not None else pa.schema([table.schema().field(name) for name in columns])
