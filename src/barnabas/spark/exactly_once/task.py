"""What a task does: its rows in a transaction of its own, which is left for the driver to end."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from barnabas.client.arrow.columns import keep_freed_memory
from barnabas.client.arrow.encoding import EncodedBatch
from barnabas.client.wire.client import Client
from barnabas.client.wire.errors import BrokerError, ClientError
from barnabas.client.wire.transactional import (
    TransactionalProducer,
    add_partitions,
    end_transaction,
    init_producer,
)
from barnabas.model.ids import TopicPartition
from barnabas.spark.client_settings import connect
from barnabas.spark.exactly_once.decision import SourceOffsets, read_decision
from barnabas.spark.exactly_once.names import Origin, TaskTransaction, free_name, transactional_id
from barnabas.spark.exactly_once.rows import Checksum, SourceRows
from barnabas.spark.options import SinkOptions
from barnabas.spark.producer import Delivery
from barnabas.spark.task_writer import Counts, TopicWriter
from barnabas.wire.batch import TRANSACTIONAL, add_sequence

_log = logging.getLogger("barnabas.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task tells the driver."""

    origin: Origin
    counts: Counts = field(default_factory=Counts)
    transaction: TaskTransaction | None = None
    """None where there were no rows."""
    topics: tuple[str, ...] = ()
    offsets: SourceOffsets = field(default_factory=dict)
    seen: int | None = None
    """The sequence of the decision by which rows were left out; 0 where there was none."""


class TransactionalDelivery(Delivery):
    """Records of a producer's transactions.

    ``coordinator`` is a client of its own: on the connections of the one that sends records, replies are due.
    """

    def __init__(self, coordinator: Client, options: SinkOptions, producer: TransactionalProducer) -> None:
        super().__init__(options.bootstrap_servers, is_idempotent=True)
        self._coordinator = coordinator
        self._producer = producer
        self.transactional_id = producer.transactional_id
        self._sequences: dict[TopicPartition, int] = {}
        self._enlisted: set[TopicPartition] = set()

    def begin(self, client: Client) -> None:
        """The producer has its id."""

    def enlist(self, client: Client, places: set[TopicPartition]) -> None:
        new = places - self._enlisted
        if new:
            add_partitions(self._coordinator, self._producer, new)
            self._enlisted |= new

    def stamp(self, place: TopicPartition, batch: EncodedBatch) -> None:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = add_sequence(sequence, batch.record_count)
        marked = batch._replace(attributes=batch.attributes | TRANSACTIONAL)
        marked.stamp(self._producer.producer_id, self._producer.producer_epoch, sequence)

    def next_transaction(self) -> None:
        """After the end of one, under the same epoch: sequences go on."""
        self._enlisted.clear()


def write_transaction(options: SinkOptions, batches: Iterable[pa.RecordBatch], origin: Origin) -> TaskResult:
    """Returns when all rows are stored. Raises BrokerError, ClientError, RowRefused or ExactlyOnceError."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return TaskResult(origin=origin)
    keep_freed_memory()
    with connect(options.kafka) as client, connect(options.kafka) as coordinator:
        task = _Task(client, coordinator, options, origin)
        try:
            task.add(first)
            for batch in filled:
                task.add(batch)
            return task.finish()
        except BaseException:
            task.abort()
            raise


class _Task:
    def __init__(self, client: Client, coordinator: Client, options: SinkOptions, origin: Origin) -> None:
        self._origin = origin
        decided = read_decision(coordinator, origin.application) if origin.batch is not None else None
        self._name = free_name(origin, decided.batch if decided and decided.query == origin.query else 0)
        name = transactional_id(origin.application, self._name)
        self._coordinator = coordinator
        self._producer = init_producer(coordinator, name, options.delivery.transaction_timeout_ms)
        self._writer = TopicWriter(client, options, TransactionalDelivery(coordinator, options, self._producer))
        self._checksum = Checksum()
        self._source: SourceRows | None = None
        self._seen: int | None = None
        if options.delivery.source_column is not None:
            self._seen = decided.sequence if decided is not None else 0
            already_in = decided.offsets_before(origin.query) if decided is not None else {}
            self._source = SourceRows(options.delivery.source_column, already_in)

    def add(self, batch: pa.RecordBatch) -> None:
        if self._source is not None:
            batch = self._source.new_rows(batch)
        if batch.num_rows:
            self._checksum.add(batch)
            self._writer.add(batch)

    def finish(self) -> TaskResult:
        counts = self._writer.finish()
        numbers = self._producer.producer_id, self._producer.producer_epoch
        transaction = TaskTransaction(self._name, *numbers, counts.rows, self._checksum.value)
        if self._source is not None and self._source.left_out:
            _log.warning(
                "%d rows were left out: they are in since another checkpoint of application %s",
                self._source.left_out,
                self._origin.application,
            )
        return TaskResult(
            origin=self._origin,
            counts=counts,
            transaction=transaction if counts.rows else None,
            topics=tuple(self._writer.topics),
            offsets=self._source.reached if self._source is not None else {},
            seen=self._seen,
        )

    def abort(self) -> None:
        """As early as can be: an open transaction keeps readers from all that comes after it."""
        with suppress(BrokerError, ClientError):
            end_transaction(self._coordinator, self._producer, commit=False)
