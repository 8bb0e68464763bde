"""Reads file ranges that are not in the page cache off the loop, so that one consumer does not delay the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 2
CHUNK = 1 << 20


class ReadAhead:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self, chunk: Any, then: Callable[[], None]) -> None:
        """``chunk`` is a file range. Its descriptor is pinned while a thread reads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="barnabas-read")
        descriptor = chunk.file.fileno()
        future = self._pool.submit(_touch, descriptor, chunk.position, chunk.size)

        def done() -> None:
            chunk.file.release_fileno()
            chunk.is_hot = True
            then()

        future.add_done_callback(lambda _: self._post(done))

    def _post(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def _touch(descriptor: int, position: int, size: int) -> None:
    """Brings the range into the page cache; an error shows again when the range is sent."""
    end = position + size
    with contextlib.suppress(OSError):
        while position < end and (data := os.pread(descriptor, min(CHUNK, end - position), position)):
            position += len(data)
