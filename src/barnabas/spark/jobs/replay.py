"""Records of a table or a topic into a topic, in order per key, at a pace.

The records of a key are in one partition, in their order; partitions are read in the order of their offsets, and a key
goes to one partition again. One process reads and writes: a limit of so many a second is kept exactly, and a stop names
the offsets to go on from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from barnabas.client.wire import Client
from barnabas.model.ids import TopicPartition
from barnabas.spark.jobs.rows import Piece
from barnabas.spark.options import SinkOptions
from barnabas.spark.task_writer import TopicWriter

PACE_S = 0.1
"""A limit is kept over spans of this length."""
REPORT_S = 0.5

OnRows = Callable[[int], None]


class Replayed(NamedTuple):
    rows: int
    seconds: float
    next_offsets: dict[TopicPartition, int]
    """Where the next one would go on; all before is acknowledged."""
    finished: bool


def replay(
    client: Client,
    pieces: Iterable[Piece],
    options: SinkOptions,
    *,
    per_second: float | None = None,
    keep_partition: bool = False,
    keep_time: bool = False,
    on_rows: OnRows | None = None,
) -> Replayed:
    """Writes the pieces, at most so many records a second. Ctrl-C ends it in order: what was read is acknowledged."""
    began = time.monotonic()
    writer = TopicWriter(client, options)
    reached: dict[TopicPartition, int] = {}
    rows, finished, reported_at = 0, True, began
    try:
        for piece in pieces:
            for part in _slices(piece.batch, per_second):
                writer.add(_as_written(part, keep_partition, keep_time))
                rows += part.num_rows
                reached[piece.partition] = int(part.column("offset")[-1].as_py()) + 1
                if per_second is not None:
                    writer.flush()
                    _wait(began + rows / per_second)
                if on_rows and time.monotonic() - reported_at > REPORT_S:
                    reported_at = time.monotonic()
                    on_rows(rows)
            reached[piece.partition] = piece.next_offset
    except KeyboardInterrupt:
        finished = False
    writer.finish()
    if on_rows:
        on_rows(rows)
    return Replayed(rows, time.monotonic() - began, reached, finished)


def _slices(batch: pa.RecordBatch, per_second: float | None) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    size = batch.num_rows if per_second is None else max(1, int(per_second * PACE_S))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


def _as_written(batch: pa.RecordBatch, keep_partition: bool, keep_time: bool) -> pa.RecordBatch:
    names = [
        "key",
        "value",
        "headers",
        *(["partition"] if keep_partition else []),
        *(["timestamp"] if keep_time else []),
    ]
    return batch.select([name for name in names if name in batch.schema.names])


def _wait(until: float) -> None:
    left = until - time.monotonic()
    if left > 0:
        time.sleep(left)
