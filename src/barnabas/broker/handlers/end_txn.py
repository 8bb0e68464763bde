"""EndTxn 0–5: commits or aborts a transaction; from version 5 the response has the next epoch (KIP-890)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.transacting import ask
from barnabas.core.txn.requests import EndTransaction, Owner
from barnabas.core.txn.transaction import EPOCH_BUMP_VERSION
from barnabas.model.errors import ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.end_txn import EndTxnRequest, EndTxnResponse

FIRST_WITH_FENCED = 2
"""KIP-588."""
FIRST_WITH_EPOCH_BUMP = 5


def handle(broker: Broker, exchange: Request, request: EndTxnRequest) -> None:
    asked = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
        wall_ms=broker.clock.now_ms(),
        client_version=EPOCH_BUMP_VERSION if exchange.version >= FIRST_WITH_EPOCH_BUMP else 0,
    )

    def finished(owner: Owner) -> EndTxnResponse:
        return EndTxnResponse(producer_id=owner.producer_id, producer_epoch=owner.producer_epoch)

    def failed(code: ErrorCode) -> EndTxnResponse:
        return EndTxnResponse(error_code=code)

    ask(
        broker,
        exchange,
        request.transactional_id,
        asked,
        finished,
        failed,
        fenced_from_version=FIRST_WITH_FENCED,
    )
