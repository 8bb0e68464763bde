"""AssignReplicasToDirs 0: a broker reports which directory holds which replica (KIP-858)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest


def handle(controller: Controller, request: Request, message: AssignReplicasToDirsRequest) -> None:
    controller.answer(request, message)
