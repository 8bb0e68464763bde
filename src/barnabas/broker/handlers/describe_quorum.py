"""DescribeQuorum 0–2: answered by the controller (KIP-595, KIP-836)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_quorum import DescribeQuorumRequest


def handle(broker: Broker, exchange: Request, request: DescribeQuorumRequest) -> None:
    forward(broker, exchange, request)
