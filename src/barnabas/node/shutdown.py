"""How a node stops: acknowledge, give up leadership, close connections, be fenced, close the logs.

The order matters. A producer that gets NOT_LEADER_OR_FOLLOWER for what is appended already would send it again, so
appends are acknowledged first. librdkafka 2.10 and later do not reconnect after a Metadata response without brokers, so
connections are closed before the broker is fenced. Each step has a time limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError
from barnabas.model.ports import Clock
from barnabas.wire.schema import Message

STEP_TIMEOUT_MS = 5_000


class Shutdown:
    def __init__(
        self,
        *,
        clock: Clock,
        when_all_committed: Callable[[Callable[[], None]], None],
        ask_to_stop: Callable[[int, Callable[[Any], None]], None],
        end_connections: Callable[[], None],
        then: Callable[[], None],
    ) -> None:
        """``ask_to_stop`` tells the controller: the first time it takes leadership away, the second time it fences."""
        self._clock = clock
        self._when_all_committed = when_all_committed
        self._ask_to_stop = ask_to_stop
        self._end_connections = end_connections
        self._then = then

    def begin(self) -> None:
        is_over = False

        def committed() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                self._ask_to_stop(STEP_TIMEOUT_MS, self._without_leadership)

        timer = self._clock.call_at(self._clock.monotonic_ms() + STEP_TIMEOUT_MS, committed)
        self._when_all_committed(committed)

    def _without_leadership(self, response: Message | ApiError) -> None:
        self._end_connections()
        is_told = not isinstance(response, ApiError) and not response.error_code  # type: ignore[attr-defined]
        if is_told:
            self._ask_to_stop(STEP_TIMEOUT_MS, lambda _: self._then())
        else:
            self._then()
