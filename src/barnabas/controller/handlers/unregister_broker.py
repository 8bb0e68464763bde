"""UnregisterBroker 0: removes the registration of a broker (KIP-631)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.unregister_broker import UnregisterBrokerRequest


def handle(controller: Controller, request: Request, message: UnregisterBrokerRequest) -> None:
    controller.answer(request, message)
