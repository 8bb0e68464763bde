"""ListConfigResources 0–1: which resources have settings (KIP-1142). Version 0 asks for client metrics only."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.core.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from barnabas.model.errors import ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

BROKER_LOGGER_RESOURCE = 8
_ALL = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)


def handle(broker: Broker, exchange: Request, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted = (CLIENT_METRICS_RESOURCE,) if exchange.version == 0 else tuple(request.resource_types) or _ALL
    if any(resource_type not in _ALL for resource_type in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    listed = []
    for resource_type in wanted:
        listed += [ConfigResource(name, resource_type) for name in _names(broker, resource_type)]
    return ListConfigResourcesResponse(config_resources=listed)


def _names(broker: Broker, resource_type: int) -> list[str]:
    if resource_type == TOPIC_RESOURCE:
        return sorted(broker.image.topics)
    if resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(node) for node in sorted(broker.image.brokers)]
    return sorted(name for kind, name in broker.image.configs if kind == resource_type)
