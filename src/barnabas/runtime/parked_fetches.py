"""Fetches of the metadata log that wait at the leader: for records, for the high watermark, or for time to pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.core.raft import events
from barnabas.model.ports import Clock, Timer
from barnabas.wire.schema import Message

MAX_PARKED = 10_000
"""Fetches that wait at this leader; beyond it they are answered at once."""


class Call:
    """A request of another node; its token."""

    __slots__ = ("_reply", "parked", "timer")

    def __init__(self, reply: Callable[[Any], None]) -> None:
        self._reply: Callable[[Any], None] | None = reply
        self.parked: events.Park | None = None
        self.timer: Timer | None = None

    def reply(self, response: Message) -> None:
        reply = self.cancel()
        if reply is not None:
            reply(response)

    def cancel(self) -> Callable[[Any], None] | None:
        """Nobody waits for the answer any more."""
        reply, self._reply = self._reply, None
        if self.timer is not None:
            self.timer.cancel()
        return reply

    @property
    def is_open(self) -> bool:
        return self._reply is not None


class ParkedFetches:
    def __init__(self, clock: Clock, answer: Callable[[Call, Message], None]) -> None:
        """``answer`` has a fetch judged again, for good."""
        self._clock = clock
        self._answer = answer
        self._calls: dict[Call, None] = {}

    def add(self, call: Call, park: events.Park) -> None:
        call.parked = park
        self._calls[call] = None
        if len(self._calls) > MAX_PARKED:
            self.release(call)
            return
        deadline_ms = self._clock.monotonic_ms() + park.max_wait_ms
        call.timer = self._clock.call_at(deadline_ms, lambda: self.release(call))

    def wake(self, log_end_offset: int, high_watermark: int, *, all_of_them: bool = False) -> None:
        """Answers those for which there is something now."""
        for call in list(self._calls):
            park = call.parked
            if park is None or not call.is_open:
                self._calls.pop(call, None)
            elif all_of_them or log_end_offset > park.fetch_offset or high_watermark > park.high_watermark:
                self.release(call)

    def release(self, call: Call) -> None:
        if call in self._calls:
            del self._calls[call]
            if call.parked is not None and call.is_open:
                self._answer(call, call.parked.request)
