"""Requests to the active controller, wherever it is: in this node without a socket, or at another one.

A request that finds no active controller, or loses it, is sent again until its time is up. Each kind of request has a
lane of its own: a node answers the requests of one connection in order, and a heartbeat must not wait for a topic's
creation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Address, Clock, Network
from barnabas.runtime.local_peer import LocalPeer
from barnabas.wire.error_codes import errors_in
from barnabas.wire.schema import Message

RETRY_MS = 50
ATTEMPT_TIMEOUT_MS = 5_000
"""Of one attempt: a controller that is cut off would hold the request for all of its time."""

Where = Callable[[], tuple[int, Address | None]]
"""(id of the active controller or -1, its address)."""


class ControllerLink:
    def __init__(
        self, *, node_id: int, own: LocalPeer | None, where: Where, network: Network | None, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._own = own
        self._where = where
        self._network = network
        self._clock = clock
        self._is_closed = False

    def send(
        self,
        request: Message,
        timeout_ms: int,
        then: Callable[[Any], None],
        *,
        version: int | None = None,
        lane: str = "controller",
        retry: bool = True,
    ) -> None:
        """``then`` gets the response, or an ApiError."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms

        def attempt() -> None:
            if self._is_closed:
                then(ApiError(ErrorCode.NETWORK_EXCEPTION, "the node is stopping"))
                return
            left_ms = max(1, deadline_ms - self._clock.monotonic_ms())
            limit_ms = min(left_ms, ATTEMPT_TIMEOUT_MS) if retry else left_ms
            controller_id, address = self._where()
            if controller_id == self._node_id and self._own is not None:
                self._own.send(request, left_ms, answered, version=version)
            elif address is not None and self._network is not None:
                self._network.send(address, lane, request, limit_ms, answered, version=version)
            else:
                answered(ApiError(ErrorCode.NOT_CONTROLLER, "There is no active controller."))

        def answered(answer: Any) -> None:
            if not retry or not _should_retry(answer) or self._clock.monotonic_ms() + RETRY_MS >= deadline_ms:
                then(answer)
            else:
                self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, attempt)

        attempt()

    @property
    def is_own(self) -> bool:
        """Whether the active controller is in this node."""
        return self._where()[0] == self._node_id

    def close(self) -> None:
        self._is_closed = True
        if self._own is not None:
            self._own.close()


def _should_retry(answer: Any) -> bool:
    if isinstance(answer, ApiError):
        return answer.code in (
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.REQUEST_TIMED_OUT,
        )
    return ErrorCode.NOT_CONTROLLER in errors_in(answer)
