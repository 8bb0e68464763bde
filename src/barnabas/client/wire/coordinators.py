"""Requests to the coordinators of groups and of transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

from barnabas.client.wire.client import RETRIED, Client
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, error_code
from barnabas.wire.api import find_coordinator as coordinator_api
from barnabas.wire.schema import Message

R = TypeVar("R", bound=Message)


class CoordinatorKind(Enum):
    """The number in FindCoordinator, and what it looks after."""

    GROUP = 0, "group"
    TRANSACTION = 1, "transactional id"

    def __init__(self, key_type: int, noun: str) -> None:
        self.key_type = key_type
        self.noun = noun


def find_coordinator(client: Client, kind: CoordinatorKind, key: str) -> int:
    """The node that looks after a group or a transactional id. Raises BrokerError."""
    request = coordinator_api.FindCoordinatorRequest(key=key, key_type=kind.key_type, coordinator_keys=[key])
    reply = client.call(request, coordinator_api.FindCoordinatorResponse, codes=lambda reply: [_found(reply)[0]])
    code, node_id, message = _found(reply)
    if code:
        raise BrokerError(code, f"{kind.noun} {key}", message)
    return node_id


def _found(reply: coordinator_api.FindCoordinatorResponse) -> tuple[int, int, str | None]:
    only = reply.coordinators[0] if reply.coordinators else reply
    return only.error_code, only.node_id, only.error_message


def ask_coordinator(
    client: Client,
    kind: CoordinatorKind,
    key: str,
    request: Message,
    answer: type[R],
    codes: Callable[[R], Iterable[int]],
    *,
    last_version: int | None = None,
) -> tuple[R, int]:
    """The coordinator's reply and its node id; finds the coordinator again if it has moved."""
    retry = client.retry()
    while True:
        node_id = find_coordinator(client, kind, key)
        try:
            connection = client.node(node_id)
            version = connection.version_for(type(request))
            if last_version is not None:
                version = min(version, last_version)
            reply = connection.request(request, answer, version=version)
        except BrokerUnavailable:
            if not retry.again():
                raise
            continue
        if all(error_code(code) not in RETRIED for code in codes(reply)) or not retry.again():
            return reply, node_id
