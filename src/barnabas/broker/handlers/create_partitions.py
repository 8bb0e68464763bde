"""CreatePartitions 0–3: decided by the controller; partitions can be added, never taken away (KIP-195)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


def handle(broker: Broker, exchange: Request, request: CreatePartitionsRequest) -> None:
    forward(broker, exchange, request, _failed)


def _failed(request: CreatePartitionsRequest, problem: ApiError) -> CreatePartitionsResponse:
    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=problem.code, error_message=problem.message)
        for topic in request.topics
    ]
    return CreatePartitionsResponse(results=results)
