"""CreatePartitions 0–3: adds partitions (KIP-195)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.create_partitions import CreatePartitionsRequest


def handle(controller: Controller, request: Request, message: CreatePartitionsRequest) -> None:
    controller.answer(request, message)
