"""CreateTopics 2–7: decided by the controller; the answer says what was created (KIP-525, KIP-516)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse


def handle(broker: Broker, exchange: Request, request: CreateTopicsRequest) -> None:
    forward(broker, exchange, request, _failed)


def _failed(request: CreateTopicsRequest, problem: ApiError) -> CreateTopicsResponse:
    results = [
        CreatableTopicResult(name=topic.name, error_code=problem.code, error_message=problem.message)
        for topic in request.topics
    ]
    return CreateTopicsResponse(topics=results)
