"""DescribeGroups 0–6: state, members, subscriptions and assignments of groups (KIP-345, KIP-1043)."""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.broker.grouping import wrapped
from barnabas.model.errors import ApiError
from barnabas.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""READ, DELETE and DESCRIBE, as bits of KIP-430."""


def handle(broker: Broker, exchange: Request, request: DescribeGroupsRequest) -> DescribeGroupsResponse | None:
    if not request.groups:
        return DescribeGroupsResponse()
    answers: dict[int, DescribedGroup] = {}

    def answered(slot: int, response: object) -> None:
        if isinstance(response, ApiError):
            answers[slot] = DescribedGroup(error_code=response.code, group_id=request.groups[slot])
        else:
            assert isinstance(response, DescribeGroupsResponse)
            answers[slot] = response.groups[0]
            if request.include_authorized_operations:
                answers[slot].authorized_operations = ALL_GROUP_OPERATIONS
        if len(answers) == len(request.groups):
            exchange.reply(DescribeGroupsResponse(groups=[answers[n] for n in range(len(request.groups))]))

    for slot, group_id in enumerate(request.groups):
        message = DescribeGroupsRequest(groups=[group_id])
        broker.groups.submit(
            group_id,
            wrapped(broker, exchange, message),
            lambda response, slot=slot: answered(slot, response),  # type: ignore[misc]
        )
    return None
