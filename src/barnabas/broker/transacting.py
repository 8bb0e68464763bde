"""Passes requests about transactions to the shard of the transactional id, and translates errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import told
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.schema import Message

_UNREACHED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""The coordinator could not say whether a partition is part of a transaction: the client has to try again."""


def ask(
    broker: Broker,
    exchange: Request,
    transactional_id: str,
    request: Any,
    finished: Callable[[Any], Message],
    failed: Callable[[ErrorCode], Message],
    *,
    fenced_from_version: int = 0,
) -> None:
    """Replies with the shard's answer. Clients of versions before ``fenced_from_version`` know no PRODUCER_FENCED."""

    def answered(response: Any) -> None:
        if not isinstance(response, ApiError):
            exchange.reply(finished(response))
            return
        code = told(response)
        if code is ErrorCode.PRODUCER_FENCED and exchange.version < fenced_from_version:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        exchange.reply(failed(code))

    if not transactional_id:
        answered(ApiError(ErrorCode.INVALID_REQUEST))
    else:
        broker.transactions.submit(transactional_id, request, answered)


def unverified(problem: ApiError, *, knows_abortable: bool, otherwise: ErrorCode) -> ApiError:
    """The error for an append whose transaction the coordinator does not confirm.

    ``otherwise`` is the retriable error of the API for a coordinator that could not be asked.
    """
    code = problem.code
    if code is ErrorCode.PRODUCER_FENCED:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "The partition is not part of the transaction.")
    if code in _UNREACHED:
        return ApiError(otherwise, f"The transaction could not be verified with its coordinator: {code.name}.")
    return problem
