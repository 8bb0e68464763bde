"""Heartbeat 0–4: a member lives, and learns of rebalances (KIP-345).

A heartbeat with nothing to tell is held back for a while (ADR 5): should a rebalance begin meanwhile, its answer says
so at once, where otherwise the member would learn of it with its next one. Whatever else the client sends is not kept
waiting behind it: then the heartbeat is answered first.
"""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask, may_wait, told
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, exchange: Request, request: HeartbeatRequest) -> None:
    if may_wait(exchange, request):
        exchange.overtaken = lambda: exchange.reply(HeartbeatResponse())
    ask(broker, exchange, request.group_id, request, lambda problem: HeartbeatResponse(error_code=told(problem)))
