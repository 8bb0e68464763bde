"""Transactions of a producer, request by request.

Whoever knows the transactional id, producer id and epoch of a transaction can go on with it or end it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.client.wire.client import Client
from barnabas.client.wire.coordinators import CoordinatorKind, ask_coordinator
from barnabas.client.wire.errors import BrokerError
from barnabas.client.wire.routed import by_topic, numbers_by_topic
from barnabas.model.errors import RETRIABLE, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.wire.api import add_partitions_to_txn as partitions_api
from barnabas.wire.api import txn_offset_commit as offset_api
from barnabas.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.schema import Message

R = TypeVar("R", bound=Message)

LAST_PRODUCE_VERSION = 11
"""Of transactional batches: above, brokers add partitions by themselves (KIP-890); see ``LAST_VERSIONS``."""


class TransactionalProducer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class MarkedOffset(NamedTuple):
    offset: int
    metadata: str = ""


def init_producer(client: Client, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
    """A new epoch of this id: a transaction that it has is aborted, and older epochs are fenced. Raises BrokerError."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    try:
        reply = _ask(client, transactional_id, request, InitProducerIdResponse, lambda reply: [reply.error_code])
    except BrokerError as error:
        if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        text = f"transaction.timeout.ms is {timeout_ms}, above the broker's transaction.max.timeout.ms"
        raise BrokerError(error.code, error.subject, text) from error
    return TransactionalProducer(transactional_id, reply.producer_id, reply.producer_epoch)


def add_partitions(client: Client, producer: TransactionalProducer, places: Iterable[TopicPartition]) -> None:
    """Before the first record of each. Raises BrokerError."""
    request = partitions_api.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            partitions_api.AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in numbers_by_topic(places)
        ],
    )
    _ask(client, producer.transactional_id, request, partitions_api.AddPartitionsToTxnResponse, _added_codes)


def _added_codes(reply: partitions_api.AddPartitionsToTxnResponse) -> list[int]:
    """The telling ones first: where a partition is refused, the others are answered with "not attempted"."""
    results = reply.results_by_topic_v3_and_below
    codes = [part.partition_error_code for topic in results for part in topic.results_by_partition]
    return sorted(codes, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)


def add_offsets(
    client: Client, producer: TransactionalProducer, group_id: str, offsets: Mapping[TopicPartition, MarkedOffset]
) -> None:
    """Offsets of a group that count once the transaction is committed. Raises BrokerError."""
    adding = AddOffsetsToTxnRequest(*producer, group_id)
    _ask(client, producer.transactional_id, adding, AddOffsetsToTxnResponse, lambda reply: [reply.error_code])
    partition = offset_api.TxnOffsetCommitRequestPartition
    topics = [
        offset_api.TxnOffsetCommitRequestTopic(name, [partition(n, at.offset, -1, at.metadata) for n, at in parts])
        for name, parts in by_topic(offsets)
    ]
    request = offset_api.TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
    )
    _ask(client, group_id, request, offset_api.TxnOffsetCommitResponse, _offset_codes, CoordinatorKind.GROUP)


def _offset_codes(reply: offset_api.TxnOffsetCommitResponse) -> list[int]:
    return [part.error_code for topic in reply.topics for part in topic.partitions]


def end_transaction(client: Client, producer: TransactionalProducer, *, commit: bool) -> None:
    """Raises BrokerError. When it returns, the outcome is certain; readers see it a moment later."""
    request = EndTxnRequest(*producer, commit)
    _ask(client, producer.transactional_id, request, EndTxnResponse, lambda reply: [reply.error_code])


def _ask(
    client: Client,
    key: str,
    request: Message,
    answer: type[R],
    codes: Callable[[R], Iterable[int]],
    kind: CoordinatorKind = CoordinatorKind.TRANSACTION,
) -> R:
    """Also asks again about topics that are not known: one that was just created may be new to the coordinator."""
    return ask_coordinator(client, kind, key, request, answer, codes, retried=RETRIABLE)[0]
