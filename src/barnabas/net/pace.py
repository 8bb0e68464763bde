"""How one peer sends, as far as it shows: waiting for our answers or running ahead of them, in large batches or not.

Whoever waits is answered as soon as there is an answer. Whoever runs ahead gets all answers together, and has its
requests gathered if it is a producer of large batches on this machine, while nobody else asks anything of us.
"""

from __future__ import annotations

import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable

from barnabas.net.courtesy import Courtesy
from barnabas.net.gathering import Gathering

WINDOW = 5
"""Requests in flight of an idempotent producer, and of most others unless told otherwise. Whoever keeps to such a limit
waits for our answers; whoever has had more in flight sends on without them."""


class Pace:
    __slots__ = ("_courtesy", "_gathering", "_look", "_loop", "_neighbour", "_window", "runs_ahead")

    def __init__(
        self, courtesy: Courtesy, loop: AbstractEventLoop, neighbour: socket.socket | None, look: Callable[[], None]
    ) -> None:
        """``neighbour`` is the peer's socket if it is on this machine; ``look`` receives what is there."""
        self.runs_ahead = False
        self._courtesy = courtesy
        self._loop = loop
        self._neighbour = neighbour
        self._look = look
        self._window = WINDOW
        self._gathering: Gathering | None = None

    def note(self, requests: int, records: int, *, has_begun_another: bool) -> None:
        """So many have been handled that came together. Told before the last answer leaves."""
        is_bulk = self._courtesy.is_bulk(records)
        if requests > self._window:
            self.runs_ahead = True
        if not self.runs_ahead or self._neighbour is None:
            return
        if not is_bulk or not self._courtesy.is_due:
            self._stop_gathering()
            return
        self._courtesy.make_way(self._neighbour)
        if self._gathering is None:
            self._gathering = Gathering(self._loop, self._neighbour, self._look)
        elif self._gathering.is_awaited(has_begun_another=has_begun_another):
            self.runs_ahead = False
            self._window = max(requests, self._window)
            self._stop_gathering()

    def note_silence(self) -> None:
        """We looked, and nothing was there."""
        if self._gathering is not None and self._gathering.is_over():
            self.close()

    def close(self) -> None:
        """The peer has stopped, or is gone. Others for whom way is made are patient enough to be found anew."""
        if self._gathering is not None:
            self._stop_gathering()
            self._courtesy.start_over()

    def _stop_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.end()
            self._gathering = None
