"""Requests that the controller decides: sent on to it, answered with what it says."""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.runtime.refusals import refusal_of
from barnabas.wire.schema import Message


def forward(broker: Broker, exchange: Request, request: Message) -> None:
    """In the client's own version: a later one may have no place for what it asks."""

    def answered(response: Any) -> None:
        exchange.reply(refusal_of(request, response) if isinstance(response, ApiError) else response)

    broker.to_controller(request, answered, exchange.version)
