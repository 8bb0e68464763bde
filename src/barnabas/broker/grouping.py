"""Requests about groups: taken to the shard that holds the group, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.context import Broker, Request
from barnabas.core.group.turn import GroupRequest
from barnabas.model.errors import ApiError
from barnabas.wire.schema import Message


def wrapped(broker: Broker, exchange: Request, message: Message) -> GroupRequest:
    return GroupRequest(
        message, exchange.version, exchange.client_id or "", f"/{exchange.client_host}", broker.clock.now_ms()
    )


def ask(
    broker: Broker,
    exchange: Request,
    group_id: str,
    message: Message,
    failed: Callable[[ApiError], Message],
    finished: Callable[[Any], Message] | None = None,
) -> None:
    """Replies with the shard's answer. ``failed`` makes the response for a group that cannot be served here now."""

    def answered(response: Any) -> None:
        if isinstance(response, ApiError):
            exchange.reply(failed(response))
        else:
            exchange.reply(response if finished is None else finished(response))

    broker.groups.submit(group_id, wrapped(broker, exchange, message), answered)
