"""CreateTopics 2–7: decided by the controller; the answer says what was created (KIP-525, KIP-516)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.create_topics import CreateTopicsRequest


def handle(broker: Broker, exchange: Request, request: CreateTopicsRequest) -> None:
    forward(broker, exchange, request)
