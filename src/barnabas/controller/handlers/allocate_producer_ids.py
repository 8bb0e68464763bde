"""AllocateProducerIds 0: gives a broker a block of producer ids (KIP-730)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.allocate_producer_ids import AllocateProducerIdsRequest


def handle(controller: Controller, request: Request, message: AllocateProducerIdsRequest) -> None:
    controller.answer(request, message)
