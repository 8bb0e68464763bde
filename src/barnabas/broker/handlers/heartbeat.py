"""Heartbeat 0–4: keeps a member's session alive and reports rebalances (KIP-345).

While there is no rebalance the response is delayed (ADR 5): a rebalance that begins meanwhile is reported at once
instead of with the next heartbeat. A later request on the connection does not wait behind it: the heartbeat is then
answered first.
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
