"""Forwards requests that the controller decides, and replies with its response."""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.runtime.refusals import refusal_of
from barnabas.wire.schema import Message


def forward(broker: Broker, exchange: Request, request: Message) -> None:
    """Keeps the client's version: a later one may lack fields that the request uses."""

    def answered(response: Any) -> None:
        exchange.reply(refusal_of(request, response) if isinstance(response, ApiError) else response)

    broker.to_controller(request, answered, exchange.version)
