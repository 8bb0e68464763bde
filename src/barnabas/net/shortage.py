"""Buffer pressure: what happens when incomplete requests have used up queued.max.request.bytes.

A connection whose buffer has to grow then waits. A few peers that send half a request and stop would make all others
wait until the frame timeout, and so would peers that each hold half of what they need. So while a connection waits,
all peers are checked every second. Those that sent fewer than PROGRESS_BYTES since the last check are stalled and are
closed, the one with the oldest frame first, until there is room for one that waits. A connection that itself waits for
room counts as stalled only when no other makes progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.net.connection import Connection
    from barnabas.net.listener import Listener

LOOK_EVERY_S = 1.0
PROGRESS_BYTES = 64 << 10
"""Fewer bytes than this between two checks count as stalled."""


class Shortage:
    """Tracks the connections that wait for buffer room. Runs no timer while none waits."""

    def __init__(self) -> None:
        self._waiting: set[Connection] = set()
        self._seen: dict[Connection, tuple[float | None, int]] = {}
        """Connection -> start time of its frame and bytes received of it, at the last check."""
        self._is_watching = False

    def wait(self, connection: Connection, listener: Listener) -> None:
        """``listener`` may be any: they share their limits."""
        self._waiting.add(connection)
        if not self._is_watching:
            self._watch(listener)

    def _watch(self, listener: Listener) -> None:
        self._is_watching = True
        self._seen = {each: each.arrived for each in listener.limits.open if each.waits_for_peer}
        listener.loop.call_later(LOOK_EVERY_S, self._look, listener)

    def _look(self, listener: Listener) -> None:
        for connection in list(listener.limits.open):
            connection.release_buffer()
        self._forget_served()
        self._make_room(listener)
        for connection in sorted(self._waiting, key=_began, reverse=True):
            connection.read_on()
        self._forget_served()
        self._is_watching = False
        self._seen = {}
        if self._waiting:
            self._watch(listener)

    def _forget_served(self) -> None:
        self._waiting = {each for each in self._waiting if each.waits_for_room}

    def _make_room(self, listener: Listener) -> None:
        stalled = self._stalled()
        while stalled and self._waiting:
            if listener.limits.has_room(min(each.buffer_bytes for each in self._waiting)):
                return
            victim = stalled.pop()
            if self._waiting != {victim}:  # closing it would help no other connection
                self._waiting.discard(victim)
                victim.give_up("there is no room for the requests of others, and its own makes no progress")

    def _stalled(self) -> list[Connection]:
        """The one with the oldest frame last."""
        slow = [each for each in self._seen if each.is_open and not self._has_progressed(each)]
        if len(slow) < sum(each.is_open for each in self._seen):
            slow = [each for each in slow if each not in self._waiting]
        return sorted(slow, key=_began, reverse=True)

    def _has_progressed(self, connection: Connection) -> bool:
        frame_since, received = self._seen[connection]
        now_since, now_received = connection.arrived
        return now_since != frame_since or now_received - received >= PROGRESS_BYTES


def _began(connection: Connection) -> float:
    return connection.frame_since or 0.0
