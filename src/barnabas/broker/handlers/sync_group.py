"""SyncGroup 0–5: the leader sends the assignment, the other members wait for theirs (KIP-345, KIP-559)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask, told
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(broker: Broker, exchange: Request, request: SyncGroupRequest) -> None:
    ask(broker, exchange, request.group_id, request, lambda problem: SyncGroupResponse(error_code=told(problem)))
