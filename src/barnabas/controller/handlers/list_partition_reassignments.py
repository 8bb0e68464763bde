"""ListPartitionReassignments 0: the moves that are under way (KIP-455)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest


def handle(controller: Controller, request: Request, message: ListPartitionReassignmentsRequest) -> None:
    controller.answer(request, message)
