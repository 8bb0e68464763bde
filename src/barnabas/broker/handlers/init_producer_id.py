"""InitProducerId 0–5: ids for idempotent producers (KIP-98, KIP-360). Transactional ids are not served yet."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(broker: Broker, exchange: Request, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if request.transactional_id is not None:
        wrong = ErrorCode.INVALID_REQUEST if request.transactional_id == "" else ErrorCode.UNSUPPORTED_VERSION
        return _refused(wrong)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)

    def allocated(producer_id: int | ApiError) -> None:
        if isinstance(producer_id, ApiError):
            exchange.reply(_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            exchange.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.producer_ids.allocate(allocated)
    return None


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
