"""DeleteGroups 0–2: deletes groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask_each, told
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(broker: Broker, exchange: Request, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
    names = list(dict.fromkeys(request.groups_names))
    if not names:
        return DeleteGroupsResponse()

    def finished(answers: list[Any]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[_result(*pair) for pair in zip(names, answers, strict=True)])

    ask_each(broker, exchange, [(name, DeleteGroupsRequest(groups_names=[name])) for name in names], finished)
    return None


def _result(name: str, answer: Any) -> DeletableGroupResult:
    if isinstance(answer, ApiError):
        return DeletableGroupResult(name, told(answer))
    result: DeletableGroupResult = answer.results[0]
    return result
