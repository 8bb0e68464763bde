"""Virtual time: one event queue, and a clock for each node that can pause, jump and run too fast or too slowly."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

START_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""


class Event:
    """One callback in the queue; also the timer that a node can cancel."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Scheduler:
    """Runs events in the order of their time; those of the same time in the order in which they were added."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.events_run = 0
        self._queue: list[tuple[float, int, Event]] = []
        self._numbers = count()

    def at(self, when_ms: float, callback: Callable[[], None]) -> Event:
        event = Event(callback)
        heapq.heappush(self._queue, (max(when_ms, self.now_ms), next(self._numbers), event))
        return event

    def after(self, delay_ms: float, callback: Callable[[], None]) -> Event:
        return self.at(self.now_ms + delay_ms, callback)

    def run_one(self, end_ms: float) -> bool:
        """Runs the next event; False where there is none until then."""
        while self._queue and self._queue[0][0] <= end_ms:
            when_ms, _, event = heapq.heappop(self._queue)
            callback, event.callback = event.callback, None
            if callback is not None:
                self.now_ms = when_ms
                self.events_run += 1
                callback()
                return True
        self.now_ms = max(self.now_ms, end_ms)
        return False

    def run_until(self, end_ms: float, *, on_event: Callable[[], None] = lambda: None) -> None:
        """``on_event`` is called after each event: for what must always hold."""
        while self._queue and self._queue[0][0] <= end_ms:
            when_ms, _, event = heapq.heappop(self._queue)
            callback, event.callback = event.callback, None
            if callback is None:
                continue
            self.now_ms = when_ms
            self.events_run += 1
            callback()
            on_event()
        self.now_ms = max(self.now_ms, end_ms)


ROUNDING_MS = 1e-6
"""A timer fires when its clock has reached the deadline, not a rounding error before."""


class NodeClock:
    """The clock of one incarnation of a node. Its timers die with it, wait while it is paused, and its wall jumps."""

    def __init__(self, scheduler: Scheduler, rate: float = 1.0) -> None:
        """``rate`` is how many of its seconds pass in a second of the simulation: drift."""
        self._scheduler = scheduler
        self._rate = rate
        self._is_dead = False
        self._paused_until_ms = 0.0
        self.wall_offset_ms = 0
        """How wrong the wall clock is."""

    def now_ms(self) -> int:
        return START_MS + int(self._scheduler.now_ms * self._rate) + self.wall_offset_ms

    def monotonic_ms(self) -> int:
        return int(self._scheduler.now_ms * self._rate + ROUNDING_MS)

    def monotonic_ns(self) -> int:
        return int(self._scheduler.now_ms * self._rate * 1_000_000)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Event:
        event = Event(callback)
        self._scheduler.at(deadline_ms / self._rate, lambda: self._fire(event))
        return event

    def _fire(self, event: Event) -> None:
        if self._is_dead or event.callback is None:
            return
        if self._scheduler.now_ms < self._paused_until_ms:
            self._scheduler.at(self._paused_until_ms, lambda: self._fire(event))
            return
        callback, event.callback = event.callback, None
        callback()

    def run(self, delay_ms: float, callback: Callable[[], None]) -> None:
        """Something happens to the node after a delay, unless it has died by then; while it is paused it waits."""
        event = Event(callback)
        self._scheduler.after(delay_ms, lambda: self._fire(event))

    def pause(self, duration_ms: float) -> None:
        """A pause within a pause does not shorten it: what waits for its end would come after what follows."""
        self._paused_until_ms = max(self._paused_until_ms, self._scheduler.now_ms + duration_ms)

    def kill(self) -> None:
        self._is_dead = True
