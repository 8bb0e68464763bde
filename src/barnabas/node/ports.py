"""Ports of a node beyond those of ``model``: a disk that can be locked and shared with threads, and worker threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from barnabas.model.ports import Disk


class NodeDisk(Disk, Protocol):
    def lock(self, path: str) -> bool:
        """False where another process has it."""

    def unlock(self, path: str) -> None: ...

    def for_thread(self) -> Self:
        """The same files for a worker, which closes it with ``close_thread``."""

    def close_thread(self) -> None: ...

    def close(self) -> None: ...


class Throttle(Protocol):
    def __call__(self, size_bytes: int) -> None:
        """Called by a worker for what it has moved; with 0 after anything that took a while."""

    def limit(self, bytes_per_second: float) -> None: ...


class Worker(Protocol):
    """Somewhere work may block: a thread, which starts with its first piece of work."""

    def __call__(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        """Runs ``work`` there, then calls ``then`` on the loop with what it raised."""

    def throttle(self, bytes_per_second: float) -> Throttle: ...

    def close(self) -> None:
        """Waits for the work under way."""


Workers = Callable[[str], Worker]
"""Makes a worker of that name."""
