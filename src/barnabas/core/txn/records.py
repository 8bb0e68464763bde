"""The records of ``__transaction_state``: one per transactional id, a tombstone when it expires.

Keys are prefixed with their type, values with their version. Unknown types are skipped and kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from barnabas.core.txn.transaction import Transaction, TxnState
from barnabas.model.ids import TopicPartition
from barnabas.wire import codec
from barnabas.wire.schema import DecodeError
from barnabas.wire.stored.transaction import PartitionsSchema, TransactionLogKey, TransactionLogValue

_NUMBER = Struct(">h")
_TRANSACTION_KEY = 0
_STATES = {state.number: state for state in TxnState}

FIRST_FLEXIBLE_VERSION = 1
"""Of values; written where transaction.version is at least 1."""


class TxnRecord(NamedTuple):
    transactional_id: str
    transaction: Transaction | None
    """None is a tombstone."""
    version: int = FIRST_FLEXIBLE_VERSION

    @property
    def producer(self) -> None:
        """It belongs to no transaction itself."""


def encode(record: TxnRecord) -> tuple[bytes, bytes | None]:
    key = _NUMBER.pack(_TRANSACTION_KEY) + codec.encode_bytes(TransactionLogKey(record.transactional_id), 0)
    if record.transaction is None:
        return key, None
    value = _value(record.transaction)
    return key, _NUMBER.pack(record.version) + codec.encode_bytes(value, record.version)


def _value(transaction: Transaction) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=None
        if transaction.state is TxnState.EMPTY
        else [PartitionsSchema(topic, ids) for topic, ids in by_topic(transaction.partitions).items()],
        transaction_last_update_timestamp_ms=transaction.update_timestamp_ms,
        transaction_start_timestamp_ms=transaction.start_timestamp_ms,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_transaction_version=transaction.client_version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def decode(key: bytes | None, value: bytes | None) -> TxnRecord | None:
    """None for a type that this build does not act upon. Raises DecodeError."""
    if key is None or len(key) < _NUMBER.size:
        raise DecodeError("a transaction record without a key")
    if _NUMBER.unpack_from(key)[0] != _TRANSACTION_KEY:
        return None
    transactional_id = codec.decode(TransactionLogKey, 0, key, 2)[0].transactional_id
    if value is None:
        return TxnRecord(transactional_id, None)
    if len(value) < _NUMBER.size:
        raise DecodeError("a transaction record without a version")
    version = _NUMBER.unpack_from(value)[0]
    return TxnRecord(transactional_id, _transaction(codec.decode(TransactionLogValue, version, value, 2)[0]), version)


def _transaction(value: TransactionLogValue) -> Transaction:
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise DecodeError(f"transaction status {value.transaction_status} is unknown")
    partitions = [
        TopicPartition(topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    ]
    return Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=tuple(sorted(partitions)),
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
