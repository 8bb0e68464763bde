"""DeleteTopics 1–6: decided by the controller; by name, from version 6 by id too (KIP-516)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


def handle(broker: Broker, exchange: Request, request: DeleteTopicsRequest) -> None:
    forward(broker, exchange, request, _failed)


def _failed(request: DeleteTopicsRequest, problem: ApiError) -> DeleteTopicsResponse:
    names = [*request.topic_names, *(state.name for state in request.topics)]
    results = [
        DeletableTopicResult(name=name, error_code=problem.code, error_message=problem.message) for name in names
    ]
    return DeleteTopicsResponse(responses=results)
