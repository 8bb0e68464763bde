"""AlterConfigs 0–2: the older call, which replaces all settings of a resource; decided by the controller (KIP-133)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


def handle(broker: Broker, exchange: Request, request: AlterConfigsRequest) -> None:
    forward(broker, exchange, request, _failed)


def _failed(request: AlterConfigsRequest, problem: ApiError) -> AlterConfigsResponse:
    responses = [
        AlterConfigsResourceResponse(problem.code, problem.message, resource.resource_type, resource.resource_name)
        for resource in request.resources
    ]
    return AlterConfigsResponse(responses=responses)
