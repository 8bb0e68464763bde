"""UnregisterBroker 0: decided by the controller; removes the registration of a broker (KIP-631)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.unregister_broker import UnregisterBrokerRequest


def handle(broker: Broker, exchange: Request, request: UnregisterBrokerRequest) -> None:
    forward(broker, exchange, request)
