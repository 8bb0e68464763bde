"""DescribeTransactions 0: the state of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import told
from barnabas.core.txn.records import by_topic
from barnabas.core.txn.requests import Describe
from barnabas.core.txn.transaction import Transaction
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    broker: Broker, exchange: Request, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | None:
    asked = list(dict.fromkeys(request.transactional_ids))
    states: dict[str, TransactionState] = {}
    if not asked:
        return DescribeTransactionsResponse()

    def answered(transactional_id: str, answer: Any) -> None:
        states[transactional_id] = _state(transactional_id, answer)
        if len(states) == len(asked):
            exchange.reply(DescribeTransactionsResponse(transaction_states=[states[each] for each in asked]))

    for transactional_id in asked:
        if not transactional_id:
            answered(transactional_id, ApiError(ErrorCode.INVALID_REQUEST))
            continue
        broker.transactions.submit(
            transactional_id,
            Describe(transactional_id),
            lambda answer, transactional_id=transactional_id: answered(transactional_id, answer),  # type: ignore[misc]
        )
    return None


def _state(transactional_id: str, answer: Transaction | ApiError) -> TransactionState:
    if isinstance(answer, ApiError):
        return TransactionState(error_code=told(answer), transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=answer.state.title,
        transaction_timeout_ms=answer.timeout_ms,
        transaction_start_time_ms=answer.start_timestamp_ms,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        topics=[TopicData(topic, numbers) for topic, numbers in by_topic(answer.partitions).items()],
    )
