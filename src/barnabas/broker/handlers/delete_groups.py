"""DeleteGroups 0–2: groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.broker.grouping import wrapped
from barnabas.model.errors import ApiError
from barnabas.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(broker: Broker, exchange: Request, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
    names = list(dict.fromkeys(request.groups_names))
    if not names:
        return DeleteGroupsResponse()
    results: list[DeletableGroupResult] = []

    def answered(name: str, response: object) -> None:
        if isinstance(response, ApiError):
            results.append(DeletableGroupResult(name, response.code))
        else:
            assert isinstance(response, DeleteGroupsResponse)
            results.extend(response.results)
        if len(results) == len(names):
            exchange.reply(DeleteGroupsResponse(results=results))

    for name in names:
        broker.groups.submit(
            name,
            wrapped(broker, exchange, DeleteGroupsRequest(groups_names=[name])),
            lambda response, name=name: answered(name, response),  # type: ignore[misc]
        )
    return None
