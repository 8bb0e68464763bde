"""CreatePartitions 0–3: decided by the controller; partitions can be added, never taken away (KIP-195)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.create_partitions import CreatePartitionsRequest


def handle(broker: Broker, exchange: Request, request: CreatePartitionsRequest) -> None:
    forward(broker, exchange, request)
