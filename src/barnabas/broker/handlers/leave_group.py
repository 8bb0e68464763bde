"""LeaveGroup 0–5: removes members; several at once from version 3 (KIP-345, KIP-800)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask, told
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(broker: Broker, exchange: Request, request: LeaveGroupRequest) -> None:
    ask(broker, exchange, request.group_id, request, lambda problem: LeaveGroupResponse(error_code=told(problem)))
