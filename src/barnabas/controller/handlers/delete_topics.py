"""DeleteTopics 1–6: deletes topics, by name or id (KIP-516)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.delete_topics import DeleteTopicsRequest


def handle(controller: Controller, request: Request, message: DeleteTopicsRequest) -> None:
    controller.answer(request, message)
