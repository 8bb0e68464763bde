"""UpdateFeatures 0–2: decided by the controller; finalizes feature levels (KIP-584, KIP-778)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.update_features import UpdateFeaturesRequest


def handle(broker: Broker, exchange: Request, request: UpdateFeaturesRequest) -> None:
    forward(broker, exchange, request)
