"""Vote 0–2: grants or refuses a candidate its vote, or its pre-vote (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.vote import VoteRequest


def handle(controller: Controller, request: Request, message: VoteRequest) -> None:
    controller.driver.receive(message, request.reply)
