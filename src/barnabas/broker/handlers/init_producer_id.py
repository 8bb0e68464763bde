"""InitProducerId 0–5: ids for idempotent producers (KIP-98, KIP-360), and for the owner of a transactional id."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.transacting import ask
from barnabas.core.txn.requests import InitProducer, Owner
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FIRST_WITH_FENCED = 4
"""KIP-588."""


def handle(broker: Broker, exchange: Request, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        _initialize(broker, exchange, request, request.transactional_id)
        return None

    def allocated(producer_id: int | ApiError) -> None:
        if isinstance(producer_id, ApiError):
            exchange.reply(_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            exchange.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.producer_ids.allocate(allocated)
    return None


def _initialize(broker: Broker, exchange: Request, request: InitProducerIdRequest, transactional_id: str) -> None:
    expected = (request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    asked = InitProducer(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        wall_ms=broker.clock.now_ms(),
        expected=expected,
    )

    def finished(owner: Owner) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=owner.producer_id, producer_epoch=owner.producer_epoch)

    ask(broker, exchange, transactional_id, asked, finished, _refused, fenced_from_version=FIRST_WITH_FENCED)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
