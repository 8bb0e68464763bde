"""Ctrl-C as a flag, for code that calls librdkafka.

A KeyboardInterrupt that is raised inside one of librdkafka's callbacks gets lost or comes out as a SystemError.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any, Self

PATIENCE_S = 2.0
"""How long a wait may go on after Ctrl-C."""


class Interrupt:
    """While this context manager is open, Ctrl-C sets ``seen`` and raises nothing."""

    def __init__(self) -> None:
        self._seen_at: float | None = None
        self._before: Any = None

    @property
    def seen(self) -> bool:
        return self._seen_at is not None

    def has_passed(self, deadline: float) -> bool:
        """Whether a wait until ``deadline`` is over; after Ctrl-C it is soon."""
        if self._seen_at is not None:
            deadline = min(deadline, self._seen_at + PATIENCE_S)
        return time.monotonic() >= deadline

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # signals are the main thread's
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._seen_at is None:
            self._seen_at = time.monotonic()


class Deferred(Interrupt):
    """Ctrl-C waits until the block is done, and is raised then."""

    def __exit__(self, *raised: object) -> None:
        super().__exit__()
        if self.seen and raised[0] is None:
            raise KeyboardInterrupt


def flush(producer: Any, seconds: float, interrupt: Interrupt) -> int:
    """How many messages were not acknowledged in time."""
    deadline = time.monotonic() + seconds
    while (left := int(producer.flush(0.2))) > 0 and not interrupt.has_passed(deadline):
        pass
    return left
