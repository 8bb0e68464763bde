"""Administration of transactions (KIP-664): list and describe them, find their producers, end them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.wire.client import Client
from barnabas.client.wire.connection import Connection
from barnabas.client.wire.coordinators import CoordinatorKind, ask_coordinator
from barnabas.client.wire.errors import BrokerError, UnsupportedApi, check
from barnabas.client.wire.routed import Answer, ask_leaders, numbers_by_topic
from barnabas.client.wire.transactional import TransactionalProducer
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.wire.api import describe_producers as producers_api
from barnabas.wire.api import describe_transactions as describe_api
from barnabas.wire.api import list_transactions as list_api
from barnabas.wire.api import write_txn_markers as markers_api

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
ONGOING = "Ongoing"
OPEN_STATES = frozenset({ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The coordinator will still end the transaction in all its partitions."""


class TransactionFilter(NamedTuple):
    """Empty and negative: no filter."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    min_duration_ms: int = -1
    pattern: str | None = None
    """A regular expression that the whole transactional id must match."""


NO_FILTER = TransactionFilter()


class ListedTransaction(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionInfo(NamedTuple):
    producer: TransactionalProducer
    coordinator: int
    state: str
    timeout_ms: int
    start_time_ms: int
    """-1 where none is open."""
    partitions: tuple[TopicPartition, ...]


class ProducerInfo(NamedTuple):
    """A producer as a partition knows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    """-1 where there is none."""
    coordinator_epoch: int
    """Of the last marker in the partition; -1 where there is none."""
    transaction_start_offset: int
    """-1 where no transaction is open in the partition."""


def list_transactions(client: Client, wanted: TransactionFilter = NO_FILTER) -> list[ListedTransaction]:
    """The transactional ids of all brokers, by name. Raises BrokerError and UnsupportedApi."""
    found: list[ListedTransaction] = []
    for node_id in client.node_ids():
        _check_filters(client.node(node_id), wanted)
        request = list_api.ListTransactionsRequest(
            state_filters=list(wanted.states),
            producer_id_filters=list(wanted.producer_ids),
            duration_filter=wanted.min_duration_ms,
            transactional_id_pattern=wanted.pattern,
        )
        reply = client.call(request, list_api.ListTransactionsResponse, node_id=node_id, codes=lambda r: [r.error_code])
        check(reply.error_code, f"broker {node_id}")
        found += [
            ListedTransaction(each.transactional_id, node_id, each.producer_id, each.transaction_state)
            for each in reply.transaction_states
        ]
    return sorted(found)


def _check_filters(connection: Connection, wanted: TransactionFilter) -> None:
    """KIP-994, KIP-1152. An older broker would list everything, as if there were no filter."""
    version = connection.version_for(list_api.ListTransactionsRequest)
    given = {"duration": (wanted.min_duration_ms >= 0, 1), "pattern": (wanted.pattern is not None, 2)}
    for name, (is_given, first_version) in given.items():
        if is_given and version < first_version:
            raise UnsupportedApi(f"the broker at {connection.address} cannot list transactions by {name}")


def describe_transaction(client: Client, transactional_id: str) -> TransactionInfo:
    """Raises BrokerError: TRANSACTIONAL_ID_NOT_FOUND."""
    reply, node_id = ask_coordinator(
        client,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        describe_api.DescribeTransactionsRequest([transactional_id]),
        describe_api.DescribeTransactionsResponse,
        lambda reply: [each.error_code for each in reply.transaction_states],
    )
    (found,) = reply.transaction_states
    partitions = sorted(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions)
    return TransactionInfo(
        TransactionalProducer(transactional_id, found.producer_id, found.producer_epoch),
        node_id,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(partitions),
    )


def find_transaction(client: Client, transactional_id: str) -> TransactionInfo | None:
    """None where the id is not known. Raises BrokerError."""
    try:
        return describe_transaction(client, transactional_id)
    except BrokerError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None


def describe_producers(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ProducerInfo, ...]]:
    """The producers that the leaders of partitions know of. Raises BrokerError."""

    def ask(connection: Connection, group: list[TopicPartition]) -> Iterable[tuple[Answer, tuple[ProducerInfo, ...]]]:
        topics = [producers_api.TopicRequest(name, numbers) for name, numbers in numbers_by_topic(group)]
        request = producers_api.DescribeProducersRequest(topics=topics)
        for topic in connection.request(request, producers_api.DescribeProducersResponse).topics:
            for part in topic.partitions:
                answer = Answer(TopicPartition(topic.name, part.partition_index), part.error_code, part.error_message)
                yield answer, tuple(_producer(each) for each in part.active_producers)

    return ask_leaders(client, partitions, ask)


def _producer(found: producers_api.ProducerState) -> ProducerInfo:
    return ProducerInfo(
        found.producer_id,
        found.producer_epoch,
        found.last_sequence,
        found.last_timestamp,
        found.coordinator_epoch,
        found.current_txn_start_offset,
    )


def abort_in_partition(client: Client, partition: TopicPartition, producer: ProducerInfo) -> None:
    """Writes an abort marker to one partition, past the coordinator. Raises BrokerError.

    For a transaction that the coordinator has forgotten: of one that it knows, other partitions may be committed.
    """
    topic = markers_api.WritableTxnMarkerTopic(partition.topic, [partition.partition])
    marker = markers_api.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )

    def ask(connection: Connection, _group: list[TopicPartition]) -> Iterable[tuple[Answer, None]]:
        request = markers_api.WriteTxnMarkersRequest([marker])
        for answer in connection.request(request, markers_api.WriteTxnMarkersResponse).markers:
            for found in answer.topics:
                for part in found.partitions:
                    yield Answer(TopicPartition(found.name, part.partition_index), part.error_code), None

    ask_leaders(client, [partition], ask)


def is_known(info: TransactionInfo | None, partition: TopicPartition, producer: ProducerInfo) -> bool:
    """Whether the coordinator will end the transaction that this producer has open in the partition."""
    return (
        info is not None
        and info.producer.producer_id == producer.producer_id
        and info.state in OPEN_STATES
        and partition in info.partitions
    )


def names_of_producers(client: Client, producer_ids: Iterable[int]) -> Mapping[int, str]:
    """The transactional ids of producers that have one. Raises BrokerError."""
    wanted = sorted(set(producer_ids))
    if not wanted:
        return {}
    found = list_transactions(client, TransactionFilter(producer_ids=wanted))
    return {each.producer_id: each.transactional_id for each in found}
