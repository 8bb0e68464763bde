"""EndQuorumEpoch 0–1: the leader of the quorum has resigned (KIP-595, KIP-853)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.end_quorum_epoch import EndQuorumEpochRequest


def handle(controller: Controller, request: Request, message: EndQuorumEpochRequest) -> None:
    controller.driver.receive(message, request.reply)
