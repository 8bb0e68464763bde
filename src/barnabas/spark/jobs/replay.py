"""Records of a table or a topic into a topic, in order per key, at a pace, exactly once.

The records of a key are in one partition, in their order; partitions are read in the order of their offsets, and a key
goes to one partition again. One process reads and writes, a transaction a second, so a limit of so many a second is
kept exactly. Each transaction also stores how far the source has been read: a run of the same name goes on there,
however the last one ended.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Self

import pyarrow as pa

from barnabas.client.wire.errors import BrokerError, ClientError
from barnabas.client.wire.transactional import end_transaction, init_producer
from barnabas.model.ids import TopicPartition
from barnabas.spark.exactly_once.decision import Decision, SourceOffsets, read_decision, write_decision
from barnabas.spark.exactly_once.names import driver_id
from barnabas.spark.exactly_once.task import TransactionalDelivery
from barnabas.spark.jobs.rows import Piece, next_offset
from barnabas.spark.options import SinkOptions, connect
from barnabas.spark.task_writer import TopicWriter

PACE_S = 0.1
"""A limit is kept over spans of this length."""
REPORT_S = 0.5
COMMIT_S = 1.0
TRANSACTION_TIMEOUT_MS = 60_000
"""So long a run that was killed keeps readers waiting, unless it is started again."""

RUNNING, FINISHED = "running", "finished"

OnRows = Callable[[int], None]


class Replayed(NamedTuple):
    rows: int
    seconds: float
    next_offsets: SourceOffsets
    """Where the next run goes on; all before is committed."""
    finished: bool


def name_of(*what: object) -> str:
    """The same for the same source, target and period."""
    return f"replay-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]}"


class Replay:
    """A run under a name. It fences another run of that name."""

    def __init__(self, options: SinkOptions, topic: str, name: str) -> None:
        self._options = options
        self._topic = topic
        self._name = name
        self._client, self._coordinator = connect(options.kafka), connect(options.kafka)
        self._producer = init_producer(self._coordinator, driver_id(name), TRANSACTION_TIMEOUT_MS)
        last = read_decision(self._coordinator, name) or Decision(sequence=0, query=FINISHED, batch=0, tasks=())
        self._last = last if last.query == RUNNING else replace(last, offsets={})
        self._delivery = TransactionalDelivery(self._coordinator, options, self._producer)
        self._writer = TopicWriter(self._client, options, self._delivery)
        self._rows = self._open_rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._coordinator.close()

    @property
    def reached(self) -> SourceOffsets:
        """Where an earlier run was cut off; empty where it had finished, or there was none."""
        return self._last.offsets

    def run(
        self,
        pieces: Iterable[Piece],
        *,
        per_second: float | None = None,
        keep_partition: bool = False,
        keep_time: bool = False,
        on_rows: OnRows | None = None,
    ) -> Replayed:
        """Writes the pieces, at most so many records a second. Ctrl-C ends it after the last transaction."""
        began = time.monotonic()
        finished = False
        try:
            self._write(_parts(pieces, per_second), per_second, keep_partition, keep_time, on_rows)
            finished = True
        except KeyboardInterrupt:
            self._abort()
        except BaseException:
            with suppress(BrokerError, ClientError):
                self._abort()
            raise
        return Replayed(self._rows, time.monotonic() - began, self._last.offsets, finished)

    def _write(
        self,
        parts: Iterable[Piece],
        per_second: float | None,
        keep_partition: bool,
        keep_time: bool,
        on_rows: OnRows | None,
    ) -> None:
        began = committed_at = reported_at = time.monotonic()
        reached: dict[TopicPartition, int] = {}
        for part in parts:
            self._writer.add(_as_written(part.batch, keep_partition, keep_time))
            self._open_rows += part.batch.num_rows
            reached[part.partition] = part.next_offset
            rows = self._rows + self._open_rows
            due = began + rows / per_second if per_second else 0.0
            if max(due, time.monotonic()) - committed_at >= COMMIT_S:
                self._commit(RUNNING, reached)
                committed_at = time.monotonic()
            time.sleep(max(due - time.monotonic(), 0.0))
            if on_rows and time.monotonic() - reported_at > REPORT_S:
                reported_at = time.monotonic()
                on_rows(rows)
        self._commit(FINISHED, reached)
        if on_rows:
            on_rows(self._rows)

    def _commit(self, state: str, reached: SourceOffsets) -> None:
        self._writer.finish()
        last = self._last
        number = last.sequence + 1
        made = Decision(sequence=number, query=state, batch=number, tasks=(), offsets={**last.offsets, **reached})
        write_decision(self._coordinator, self._producer, self._name, self._topic, made)
        end_transaction(self._coordinator, self._producer, commit=True)
        self._delivery.next_transaction()
        self._on_committed(made)

    def _on_committed(self, made: Decision) -> None:
        self._last = made
        self._rows += self._open_rows
        self._open_rows = 0

    def _abort(self) -> None:
        """On new connections: replies may be due on the others. What was interrupted may have been the commit."""
        with connect(self._options.kafka) as client:
            init_producer(client, driver_id(self._name), TRANSACTION_TIMEOUT_MS)
            found = read_decision(client, self._name)
        if found is not None and found.sequence > self._last.sequence:
            self._on_committed(found)


def _parts(pieces: Iterable[Piece], per_second: float | None) -> Iterator[Piece]:
    """Cut to what may go at once; the last part of a piece goes on behind the whole of it."""
    for piece in pieces:
        count = piece.batch.num_rows
        size = max(1, int(per_second * PACE_S)) if per_second else max(count, 1)
        for start in range(0, count, size):
            part = piece.batch.slice(start, size)
            is_last = start + size >= count
            yield Piece(piece.partition, part, piece.next_offset if is_last else next_offset(part))


def _as_written(batch: pa.RecordBatch, keep_partition: bool, keep_time: bool) -> pa.RecordBatch:
    names = [
        "key",
        "value",
        "headers",
        *(["partition"] if keep_partition else []),
        *(["timestamp"] if keep_time else []),
    ]
    return batch.select([name for name in names if name in batch.schema.names])
