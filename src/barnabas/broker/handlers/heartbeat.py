"""Heartbeat 0–4: a member lives, and learns of rebalances (KIP-345)."""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.broker.grouping import ask, told
from barnabas.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, exchange: Request, request: HeartbeatRequest) -> None:
    ask(broker, exchange, request.group_id, request, lambda problem: HeartbeatResponse(error_code=told(problem)))
