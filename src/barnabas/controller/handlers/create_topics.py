"""CreateTopics 2–7: creates topics (KIP-525, KIP-516)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.create_topics import CreateTopicsRequest


def handle(controller: Controller, request: Request, message: CreateTopicsRequest) -> None:
    controller.answer(request, message)
