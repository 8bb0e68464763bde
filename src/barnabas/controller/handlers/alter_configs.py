"""AlterConfigs 0–2: replaces all settings of a resource (KIP-133)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.alter_configs import AlterConfigsRequest


def handle(controller: Controller, request: Request, message: AlterConfigsRequest) -> None:
    controller.answer(request, message)
