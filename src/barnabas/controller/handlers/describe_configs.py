"""DescribeConfigs 1–4: settings, for clients that talk to the controller (KIP-919)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.config_description import describe
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse


def handle(controller: Controller, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
    policy = controller.policy
    return describe(message, node_id=policy.node_id, image=controller.committed, static=policy.static_settings)
