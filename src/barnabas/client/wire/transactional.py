"""Transactions, request by request: whoever knows the id, producer id and epoch of one can go on with it or end it.

Requests go out in the versions before KIP-890 gave clients a part in it (transaction.version 2). Every broker takes
those, and ending a transaction leaves its epoch as it is: ended again in the same way, it answers the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.client.wire.client import Client
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, error_code
from barnabas.model.errors import RETRIABLE, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.wire.api import add_offsets_to_txn as add_offsets_api
from barnabas.wire.api import add_partitions_to_txn as add_partitions_api
from barnabas.wire.api import describe_transactions as describe_api
from barnabas.wire.api import end_txn as end_api
from barnabas.wire.api import find_coordinator as coordinator_api
from barnabas.wire.api import init_producer_id as init_api
from barnabas.wire.api import list_transactions as list_api
from barnabas.wire.api import txn_offset_commit as offset_api
from barnabas.wire.schema import Message

R = TypeVar("R", bound=Message)

LAST_PRODUCE_VERSION = 11
"""Of transactions: from 12 on a broker adds partitions by itself, and goes by the rules of transaction.version 2."""

_LAST_VERSIONS: Mapping[type[Message], int] = {
    add_partitions_api.AddPartitionsToTxnRequest: 3,
    offset_api.TxnOffsetCommitRequest: 4,
    end_api.EndTxnRequest: 4,
    init_api.InitProducerIdRequest: 5,
}

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""

ONGOING = "Ongoing"


class TransactionalProducer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class MarkedOffset(NamedTuple):
    offset: int
    metadata: str = ""


def init_producer(client: Client, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
    """A new epoch of this id: a transaction that it has is aborted, and older epochs are fenced. Raises BrokerError."""
    request = init_api.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    reply = _ask(client, transactional_id, request, init_api.InitProducerIdResponse, lambda r: [r.error_code])
    if reply.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        text = f"transaction.timeout.ms is {timeout_ms}, above the broker's transaction.max.timeout.ms"
        raise BrokerError(reply.error_code, transactional_id, text)
    _check(reply.error_code, transactional_id)
    return TransactionalProducer(transactional_id, reply.producer_id, reply.producer_epoch)


def add_partitions(client: Client, producer: TransactionalProducer, places: Iterable[TopicPartition]) -> None:
    """Before the first record of each. Raises BrokerError."""
    topics: dict[str, add_partitions_api.AddPartitionsToTxnTopic] = {}
    for place in sorted(places):
        topic = topics.setdefault(place.topic, add_partitions_api.AddPartitionsToTxnTopic(place.topic, []))
        topic.partitions.append(place.partition)
    request = add_partitions_api.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=list(topics.values()),
    )
    answer = add_partitions_api.AddPartitionsToTxnResponse
    reply = _ask(client, producer.transactional_id, request, answer, _added_codes)
    codes = [code for code in _added_codes(reply) if code]
    # Where one partition is refused, the others are answered with "not attempted".
    codes.sort(key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)
    _check(next(iter(codes), 0), producer.transactional_id)


def _added_codes(reply: add_partitions_api.AddPartitionsToTxnResponse) -> list[int]:
    results = reply.results_by_topic_v3_and_below
    return [part.partition_error_code for topic in results for part in topic.results_by_partition]


def add_offsets(
    client: Client, producer: TransactionalProducer, group_id: str, offsets: Mapping[TopicPartition, MarkedOffset]
) -> None:
    """Offsets of a group that count once the transaction is committed. Raises BrokerError."""
    adding = add_offsets_api.AddOffsetsToTxnRequest(*producer, group_id)
    answer = add_offsets_api.AddOffsetsToTxnResponse
    added = _ask(client, producer.transactional_id, adding, answer, lambda r: [r.error_code])
    _check(added.error_code, producer.transactional_id)
    topics: dict[str, offset_api.TxnOffsetCommitRequestTopic] = {}
    for place, marked in offsets.items():
        topic = topics.setdefault(place.topic, offset_api.TxnOffsetCommitRequestTopic(place.topic, []))
        topic.partitions.append(
            offset_api.TxnOffsetCommitRequestPartition(place.partition, marked.offset, -1, marked.metadata)
        )
    request = offset_api.TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=list(topics.values()),
    )
    reply = _ask(client, group_id, request, offset_api.TxnOffsetCommitResponse, _offset_codes, kind=GROUP)
    _check(next((code for code in _offset_codes(reply) if code), 0), f"group {group_id}")


def _offset_codes(reply: offset_api.TxnOffsetCommitResponse) -> list[int]:
    return [part.error_code for topic in reply.topics for part in topic.partitions]


def end_transaction(client: Client, producer: TransactionalProducer, *, commit: bool) -> None:
    """Raises BrokerError. When it returns, the outcome is certain; readers see it a moment later."""
    request = end_api.EndTxnRequest(*producer, commit)
    reply = _ask(client, producer.transactional_id, request, end_api.EndTxnResponse, lambda r: [r.error_code])
    _check(reply.error_code, producer.transactional_id)


def describe_transactions(
    client: Client, transactional_ids: Iterable[str]
) -> dict[str, tuple[str, TransactionalProducer]]:
    """The state of each and its producer. Those that nobody knows are left out. Raises BrokerError, UnsupportedApi."""
    found: dict[str, tuple[str, TransactionalProducer]] = {}
    for name in transactional_ids:
        request = describe_api.DescribeTransactionsRequest([name])
        reply = _ask(client, name, request, describe_api.DescribeTransactionsResponse, _described_codes)
        for each in reply.transaction_states:
            if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            _check(each.error_code, name)
            producer = TransactionalProducer(name, each.producer_id, each.producer_epoch)
            found[name] = each.transaction_state, producer
    return found


def _described_codes(reply: describe_api.DescribeTransactionsResponse) -> list[int]:
    return [each.error_code for each in reply.transaction_states]


def ongoing_transactions(client: Client) -> list[str]:
    """The ids of all transactions that are neither committed nor aborted. Raises BrokerError, UnsupportedApi."""
    client.load([])
    found: list[str] = []
    for node_id in list(client.metadata.brokers):
        request = list_api.ListTransactionsRequest(state_filters=[ONGOING])
        answer = list_api.ListTransactionsResponse
        reply = client.call(request, answer, node_id=node_id, codes=lambda reply: [reply.error_code])
        _check(reply.error_code, f"broker {node_id}")
        found += [each.transactional_id for each in reply.transaction_states]
    return found


def _check(code: int, subject: str) -> None:
    if code:
        raise BrokerError(code, subject)


def _ask(
    client: Client,
    key: str,
    request: Message,
    answer: type[R],
    codes: Callable[[R], Iterable[int]],
    *,
    kind: int = TRANSACTION,
) -> R:
    """The coordinator's reply. It is found again where it has moved, and asked again while it is busy."""
    retry = client.retry()
    while True:
        try:
            connection = client.node(_find_coordinator(client, key, kind))
            version = connection.version_for(type(request))
            version = min(version, _LAST_VERSIONS.get(type(request), version))
            reply = connection.request(request, answer, version=version)
        except BrokerUnavailable:
            if not retry.again():
                raise
            continue
        if all(error_code(code) not in RETRIABLE for code in codes(reply)) or not retry.again():
            return reply


def _find_coordinator(client: Client, key: str, kind: int) -> int:
    request = coordinator_api.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    reply = client.call(request, coordinator_api.FindCoordinatorResponse, codes=lambda reply: [_found(reply)[0]])
    code, node_id = _found(reply)
    _check(code, key)
    return node_id


def _found(reply: coordinator_api.FindCoordinatorResponse) -> tuple[int, int]:
    only = reply.coordinators[0] if reply.coordinators else reply
    return only.error_code, only.node_id
