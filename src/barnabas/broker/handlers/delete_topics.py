"""DeleteTopics 1–6: decided by the controller; by name, from version 6 by id too (KIP-516)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.delete_topics import DeleteTopicsRequest


def handle(broker: Broker, exchange: Request, request: DeleteTopicsRequest) -> None:
    forward(broker, exchange, request)
