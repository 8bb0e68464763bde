"""ElectLeaders 0–2: elects preferred leaders, or any (KIP-183, KIP-460)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.elect_leaders import ElectLeadersRequest


def handle(controller: Controller, request: Request, message: ElectLeadersRequest) -> None:
    controller.answer(request, message)
