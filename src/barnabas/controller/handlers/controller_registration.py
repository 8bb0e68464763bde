"""ControllerRegistration 0: registers a controller's endpoints and features (KIP-919)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.controller_registration import ControllerRegistrationRequest


def handle(controller: Controller, request: Request, message: ControllerRegistrationRequest) -> None:
    controller.answer(request, message)
