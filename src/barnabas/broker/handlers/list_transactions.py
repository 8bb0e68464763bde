"""ListTransactions 0–2: the transactional ids that this broker coordinates (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import told
from barnabas.core.txn.requests import ListTransactions
from barnabas.core.txn.transaction import TxnState
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

_KNOWN = frozenset(state.title for state in TxnState)


def handle(broker: Broker, exchange: Request, request: ListTransactionsRequest) -> ListTransactionsResponse | None:
    unknown = [name for name in request.state_filters if name not in _KNOWN]
    if unknown and len(unknown) == len(request.state_filters):
        return ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        is_wanted = _filter(request.transactional_id_pattern)
    except ApiError as problem:
        return ListTransactionsResponse(error_code=problem.code)
    asked = ListTransactions(
        states=frozenset(request.state_filters) & _KNOWN,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
        wall_ms=broker.clock.now_ms(),
    )

    def answered(answers: list[Any]) -> None:
        refused = [answer for answer in answers if isinstance(answer, ApiError)]
        if refused:
            exchange.reply(ListTransactionsResponse(error_code=told(refused[0])))
            return
        found = sorted((item for answer in answers for item in answer if is_wanted(item[0])), key=lambda item: item[0])
        listed = [TransactionState(name, each.producer_id, each.state.title) for name, each in found]
        exchange.reply(ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed))

    broker.transactions.submit_to_all(asked, answered)
    return None


def _filter(pattern: str | None) -> Callable[[str], bool]:
    """Raises ApiError for a pattern that is none."""
    if not pattern:
        return lambda _: True
    import re2  # noqa: PLC0415 -- seldom needed

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as problem:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(problem)) from problem
    return lambda text: compiled.fullmatch(text) is not None
