"""AlterPartitionReassignments 0–1: begins or cancels moving partitions to other brokers (KIP-455, KIP-860)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest


def handle(controller: Controller, request: Request, message: AlterPartitionReassignmentsRequest) -> None:
    controller.answer(request, message)
