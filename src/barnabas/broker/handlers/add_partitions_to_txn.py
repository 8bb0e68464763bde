"""AddPartitionsToTxn 0–5: partitions that a transaction will write to.

Clients send versions up to 3. From version 4 on, leaders ask for several transactions at once: to verify that a
partition is part of one, or to add it (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import told
from barnabas.broker.transacting import ask
from barnabas.core.txn.records import by_topic
from barnabas.core.txn.requests import AddPartitions, PartitionCodes
from barnabas.core.txn.transaction import EPOCH_BUMP_VERSION
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FIRST_BATCHED = 4
FIRST_WITH_FENCED = 2
"""KIP-588."""


def handle(broker: Broker, exchange: Request, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
    if exchange.version >= FIRST_BATCHED:
        return _handle_batched(broker, exchange, request.transactions)
    partitions = _partitions(request.v3_and_below_topics)
    unknown = [each for each in partitions if broker.leader_of_partition(each) is None]
    if unknown:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return _single(codes)
    asked = AddPartitions(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=partitions,
        wall_ms=broker.clock.now_ms(),
    )
    ask(
        broker,
        exchange,
        asked.transactional_id,
        asked,
        _single,
        lambda code: _single(dict.fromkeys(partitions, code)),
        fenced_from_version=FIRST_WITH_FENCED,
    )
    return None


def _handle_batched(
    broker: Broker, exchange: Request, transactions: Sequence[AddPartitionsToTxnTransaction]
) -> AddPartitionsToTxnResponse | None:
    results: list[AddPartitionsToTxnResult] = []
    if not transactions:
        return AddPartitionsToTxnResponse()

    def answered(transaction: AddPartitionsToTxnTransaction, response: Any) -> None:
        if isinstance(response, ApiError):
            response = dict.fromkeys(_partitions(transaction.topics), told(response))
        results.append(AddPartitionsToTxnResult(transaction.transactional_id, _topics(response)))
        if len(results) == len(transactions):
            exchange.reply(AddPartitionsToTxnResponse(results_by_transaction=results))

    for transaction in transactions:
        asked = AddPartitions(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            partitions=_partitions(transaction.topics),
            wall_ms=broker.clock.now_ms(),
            verify_only=transaction.verify_only,
            from_broker=True,
            client_version=EPOCH_BUMP_VERSION,
        )
        broker.transactions.submit(
            transaction.transactional_id,
            asked,
            lambda response, transaction=transaction: answered(transaction, response),  # type: ignore[misc]
        )
    return None


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _single(codes: PartitionCodes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(codes))


def _topics(codes: PartitionCodes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic,
            [AddPartitionsToTxnPartitionResult(number, codes[TopicPartition(topic, number)]) for number in numbers],
        )
        for topic, numbers in by_topic(codes).items()
    ]
