"""The real clock, on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from barnabas.model.ports import Timer


class LoopClock:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        return self._loop.call_at(deadline_ms / 1000, callback)
