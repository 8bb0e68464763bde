"""IncrementalAlterConfigs 0–1: changes single settings (KIP-339)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(controller: Controller, request: Request, message: IncrementalAlterConfigsRequest) -> None:
    controller.answer(request, message)
