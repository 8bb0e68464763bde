"""What the transaction machine is asked, what it answers, and what it asks to be done outside."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from barnabas.core.txn.transaction import Transaction
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import NO_PRODUCER_ID, TopicPartition


class InitProducer(Struct, frozen=True, kw_only=True):
    """A producer takes over a transactional id. Answered with ``Owner``."""

    transactional_id: str
    timeout_ms: int
    wall_ms: int
    expected: tuple[int, int] | None = None
    """The producer id and epoch of a producer that continues after an error."""
    new_producer_id: int = NO_PRODUCER_ID
    """To be used if one is needed: see ``ProducerIdNeeded``."""


class AddPartitions(Struct, frozen=True, kw_only=True):
    """Partitions join the transaction, or are checked to be in it. Answered with a code per partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    wall_ms: int
    verify_only: bool = False
    from_broker: bool = False
    """A leader asks, together with others: it is answered at once and asks again."""
    client_version: int = 0


class EndTransaction(Struct, frozen=True, kw_only=True):
    """The owner commits or aborts. Answered with ``Owner`` once the outcome is durable."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    wall_ms: int
    client_version: int = 0
    new_producer_id: int = NO_PRODUCER_ID


class MarkersWritten(Struct, frozen=True):
    """Every partition of a transaction has its marker, or is gone."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    wall_ms: int


class Describe(Struct, frozen=True):
    """Answered with a ``Transaction``."""

    transactional_id: str


class ListTransactions(Struct, frozen=True, kw_only=True):
    """Answered with (transactional id, transaction) of each that passes the filters; empty ones let all pass."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    wall_ms: int = 0


class Owner(Struct, frozen=True):
    """The producer id and epoch to go on with."""

    producer_id: int
    producer_epoch: int


PartitionCodes = Mapping[TopicPartition, ErrorCode]


class SendMarkers(Struct, frozen=True):
    """An effect: the outcome of this transaction is committed, its markers have to be written."""

    transactional_id: str
    transaction: Transaction


class ProducerIdNeeded(Exception):
    """The request can be decided only with a fresh producer id."""
