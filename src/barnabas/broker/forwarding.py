"""Requests that the controller decides: sent on to it, answered with what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError
from barnabas.runtime.pipeline import Request
from barnabas.wire.schema import Message

M = TypeVar("M", bound=Message)


def forward(broker: Broker, exchange: Request, request: M, failed: Callable[[M, ApiError], Message]) -> None:
    """``failed`` makes the response for when the controller could not decide at all."""

    def answered(response: Any) -> None:
        exchange.reply(failed(request, response) if isinstance(response, ApiError) else response)

    broker.to_controller(request, answered)
