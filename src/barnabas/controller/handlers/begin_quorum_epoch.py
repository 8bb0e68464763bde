"""BeginQuorumEpoch 0–1: a new leader of the quorum introduces itself (KIP-595, KIP-853)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest


def handle(controller: Controller, request: Request, message: BeginQuorumEpochRequest) -> None:
    controller.driver.receive(message, request.reply)
