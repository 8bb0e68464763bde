"""DescribeConfigs 1–4: values, sources, synonyms, types and documentation of settings (KIP-133, 226, 569)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.runtime.config_description import describe
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse


def handle(broker: Broker, exchange: Request, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return describe(request, node_id=broker.node_id, image=broker.image, static=broker.static_settings)
