"""AlterPartition 2–3: a leader asks for another in-sync set (KIP-497, KIP-903)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.alter_partition import AlterPartitionRequest


def handle(controller: Controller, request: Request, message: AlterPartitionRequest) -> None:
    controller.answer(request, message)
