"""Taking a neighbour's requests in by the handful.

Waking us costs a producer on this machine as much as the request it sends, and costs us the more the less we find. So
the kernel is told to call for us when many bytes are there (``SO_RCVLOWAT``), and we look now and then whether there
are fewer. Other connections are not kept waiting by it.

A peer that keeps to a number of requests in flight must not be gathered from: it would wait for our answers and we for
its requests. It shows in that most of the time nothing of it arrives while we work.
"""

from __future__ import annotations

import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress

ENOUGH_BYTES = 64 << 10
"""That the kernel calls for us: a batch or two of those who send large ones as they are, many of those who compress."""
EVERY_S = 0.001
"""Between two looks for fewer: well below the time for which such producers fill a batch."""
TO_BE_SURE = 32
"""By how many more arrivals the peer sent nothing while we worked than it did, until it is taken for one that waits.
Also, looks in a row that found nothing, until it is taken for one that has stopped."""


class Gathering:
    """Begins at once, for the socket of one connection."""

    __slots__ = ("_arrived", "_in_vain", "_look", "_loop", "_silent", "_socket", "_timer")

    def __init__(self, loop: AbstractEventLoop, sock: socket.socket, look: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = sock
        self._look = look
        self._arrived = False
        self._in_vain = 0
        self._silent = 0
        self._call_for_us_at(ENOUGH_BYTES)
        self._timer = loop.call_later(EVERY_S, self._on_time)

    def _call_for_us_at(self, size: int) -> None:
        with suppress(OSError):  # it is gone, or the system knows no such thing: then we are called at once
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _on_time(self) -> None:
        self._timer = self._loop.call_later(EVERY_S, self._on_time)
        if self._arrived:
            self._arrived = False
        else:
            self._look()

    def is_awaited(self, *, has_begun_another: bool) -> bool:
        """Whether the peer waits for our answers. Asked at every arrival, before any of them has left."""
        self._arrived = True
        self._in_vain = 0
        if not has_begun_another and not self._has_more():
            self._silent += 1
        elif self._silent:
            self._silent -= 1
        return self._silent >= TO_BE_SURE

    def is_over(self) -> bool:
        """Asked at every look that found nothing."""
        self._in_vain += 1
        return self._in_vain >= TO_BE_SURE

    def _has_more(self) -> bool:
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def end(self) -> None:
        self._timer.cancel()
        self._call_for_us_at(1)
