"""One thread for long blocking work, such as compaction, and the throttle for its disk I/O."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Worker:
    """Runs one piece of work after the other; the thread starts with the first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._closing = threading.Event()

    def __call__(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        self._pool.submit(self._run, work, then)

    def _run(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        problem: Exception | None = None
        try:
            work()
        except Exception as raised:  # passed to ``then``
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(then, problem)

    def throttle(self, bytes_per_second: float) -> Throttle:
        """Its sleep ends early when the worker is closed."""
        return Throttle(self._closing.wait, bytes_per_second)

    def close(self) -> None:
        """Waits for the work under way."""
        self._closing.set()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


BREATHE_EVERY_S = 0.001
BREATH_S = 0.00005


class Throttle:
    """Spreads bytes over time by putting the thread that moves them to sleep.

    Even without a limit it rests for a moment every millisecond: a thread that is busy in Python keeps the loop waiting
    for the interpreter for five milliseconds each time, and one that only lets go of it mostly gets it back first.
    """

    def __init__(self, sleep: Callable[[float], object], bytes_per_second: float) -> None:
        self._sleep = sleep
        self._free_at = 0.0
        self._breathed_at = 0.0
        self.limit(bytes_per_second)

    def limit(self, bytes_per_second: float) -> None:
        self._seconds_per_byte = 1 / bytes_per_second

    def __call__(self, size_bytes: int) -> None:
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + size_bytes * self._seconds_per_byte
        if self._free_at - now >= 0.001:
            self._sleep(self._free_at - now)
        elif now - self._breathed_at >= BREATHE_EVERY_S:
            time.sleep(BREATH_S)
            self._breathed_at = time.monotonic()
