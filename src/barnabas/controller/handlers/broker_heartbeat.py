"""BrokerHeartbeat 0–2: keeps a broker's session, fences and unfences it, shuts it down (KIP-631)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest


def handle(controller: Controller, request: Request, message: BrokerHeartbeatRequest) -> None:
    controller.answer(request, message)
