"""ListGroups 0–5: the groups that this broker coordinates, by state and type (KIP-518, KIP-848)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.grouping import wrapped
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(broker: Broker, exchange: Request, request: ListGroupsRequest) -> None:
    def answered(answers: list[object]) -> None:
        # A shard that cannot answer is one whose groups cannot be used either: the others are worth telling of.
        listed = [group for answer in answers if isinstance(answer, ListGroupsResponse) for group in answer.groups]
        exchange.reply(ListGroupsResponse(groups=sorted(listed, key=lambda group: group.group_id)))

    broker.groups.submit_to_all(wrapped(broker, exchange, request), answered)
