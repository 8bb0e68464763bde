"""A limit on bytes per second for replicas that catch up: a token bucket that holds one second's worth.

A transfer is made whole and charged afterwards, so the bucket may go below zero; the next one waits until it is above.
"""

from __future__ import annotations

from barnabas.model.settings import LONG_MAX

UNLIMITED = LONG_MAX
NEVER_MS = 1000
"""How long to wait at a rate of 0 before looking again."""


class RateLimit:
    __slots__ = ("_at_ms", "_left_bytes", "_rate")

    def __init__(self) -> None:
        self._rate = UNLIMITED
        self._left_bytes = 0.0
        self._at_ms = 0

    @property
    def is_set(self) -> bool:
        return self._rate != UNLIMITED

    def set(self, bytes_per_second: int, now_ms: int) -> None:
        if bytes_per_second != self._rate:
            self._rate, self._left_bytes, self._at_ms = bytes_per_second, float(bytes_per_second), now_ms

    def charge(self, size_bytes: int, now_ms: int) -> None:
        self._refill(now_ms)
        self._left_bytes -= size_bytes

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing more may be sent; 0 where something may."""
        if not self.is_set:
            return 0
        self._refill(now_ms)
        if self._left_bytes > 0:
            return 0
        return int(-self._left_bytes * 1000 / self._rate) + 1 if self._rate else NEVER_MS

    def _refill(self, now_ms: int) -> None:
        gained = (now_ms - self._at_ms) * self._rate / 1000
        self._left_bytes = min(self._left_bytes + gained, float(self._rate))
        self._at_ms = now_ms


def is_throttled(replicas: tuple[str, ...], partition: int, broker: int) -> bool:
    """Whether a topic's throttled.replicas setting names that replica."""
    return replicas == ("*",) or f"{partition}:{broker}" in replicas
