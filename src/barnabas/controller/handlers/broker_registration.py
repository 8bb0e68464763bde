"""BrokerRegistration 0–4: registers an incarnation of a broker (KIP-631)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest


def handle(controller: Controller, request: Request, message: BrokerRegistrationRequest) -> None:
    controller.answer(request, message)
