"""AlterConfigs 0–2: the older API, which replaces all settings of a resource; decided by the controller (KIP-133)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.alter_configs import AlterConfigsRequest


def handle(broker: Broker, exchange: Request, request: AlterConfigsRequest) -> None:
    forward(broker, exchange, request)
