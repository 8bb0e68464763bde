"""ElectLeaders 0–2: decided by the controller; elects preferred leaders, or any (KIP-183, KIP-460)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.elect_leaders import ElectLeadersRequest


def handle(broker: Broker, exchange: Request, request: ElectLeadersRequest) -> None:
    forward(broker, exchange, request)
