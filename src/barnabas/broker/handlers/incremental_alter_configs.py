"""IncrementalAlterConfigs 0–1: set, delete, append to, subtract from settings; the controller decides (KIP-339)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(broker: Broker, exchange: Request, request: IncrementalAlterConfigsRequest) -> None:
    forward(broker, exchange, request)
