"""DescribeGroups 0–6: state, members, subscriptions and assignments of groups (KIP-345, KIP-1043)."""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask_each, told
from barnabas.model.errors import ApiError
from barnabas.runtime.authorized import ALL_GROUP_OPERATIONS
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


def handle(broker: Broker, exchange: Request, request: DescribeGroupsRequest) -> DescribeGroupsResponse | None:
    if not request.groups:
        return DescribeGroupsResponse()

    def described(group_id: str, answer: Any) -> DescribedGroup:
        if isinstance(answer, ApiError):
            return DescribedGroup(error_code=told(answer), group_id=group_id)
        group: DescribedGroup = answer.groups[0]
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ALL_GROUP_OPERATIONS
        return group

    def finished(answers: list[Any]) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[described(*pair) for pair in zip(request.groups, answers, strict=True)])

    asked = [(group_id, DescribeGroupsRequest(groups=[group_id])) for group_id in request.groups]
    ask_each(broker, exchange, asked, finished)
    return None
