"""JoinGroup 0–9: a member joins a group; parked until the join phase ends (KIP-62, 345, 394, 800, 814)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask, told
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupResponse


def handle(broker: Broker, exchange: Request, request: JoinGroupRequest) -> None:
    def finished(response: JoinGroupResponse) -> JoinGroupResponse:
        if response.error_code and exchange.version >= 7:
            response.protocol_name = None
        return response

    def failed(problem: ApiError) -> JoinGroupResponse:
        return finished(JoinGroupResponse(error_code=told(problem), member_id=request.member_id))

    ask(broker, exchange, request.group_id, request, failed, finished)
