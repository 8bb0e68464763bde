"""Giving way to those who fill our sockets.

A producer of large batches that runs beside us on the same cores wakes us with every request: we take its core, find
that one request, answer and sleep again, thousands of times a second. Whoever yields the core first finds several
requests, and takes them in at once. On a core that nobody else wants, yielding takes half a microsecond and
changes nothing.

It is only for producers that have waited to fill a batch and do not wait for our answers, and only while nothing else
is asked of us: on a core that is wanted, giving way may cost the next request a turn of the scheduler (3 ms).

To a producer on this machine we leave more than a turn: the core itself on which it sends. Its messages pass from a
thread that makes them to one that sends them. Where we slow the second, they pile up between the two, and take twice
as much of the producer's time, since they have left the processor's cache by when they are sent; where we slow the
first, they do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Callable
from typing import TypeAlias

MANY_RECORDS = 100
"""Whoever sends as many at once has waited for them, and is in no hurry."""
PATIENCE = 64
"""Arrivals of many records, and of nothing else, before we give way: some 30 ms of them."""
WINDOW = 5
"""Requests in flight of an idempotent producer, and of most others unless told otherwise. Whoever keeps to such a limit
waits for our answers; whoever has had more in flight sends on without them."""
ARRIVALS_A_STEP = 4
"""Between two looks at where we run."""

StepAside: TypeAlias = Callable[[socket.socket], None]

_sched_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


def _stepping_aside() -> StepAside | None:
    """None where the system does not tell who runs where."""
    incoming_cpu: int | None = getattr(socket, "SO_INCOMING_CPU", None)
    try:
        current_core = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    if incoming_cpu is None or not hasattr(os, "sched_setaffinity"):
        return None

    def step_aside(neighbour: socket.socket) -> None:
        with contextlib.suppress(OSError):  # not allowed here, or the peer is gone
            core = neighbour.getsockopt(socket.SOL_SOCKET, incoming_cpu)
            if core != current_core():
                return
            allowed = os.sched_getaffinity(0)
            if len(allowed) > 1:
                # For this thread alone. It is moved at once, and free to be moved anywhere again.
                os.sched_setaffinity(0, allowed - {core})
                os.sched_setaffinity(0, allowed)

    return step_aside


_step_aside = _stepping_aside()


class Courtesy:
    """What all connections of a loop know of each other."""

    __slots__ = ("_bulk_in_a_row", "_step_aside", "_yield_core")

    def __init__(
        self, yield_core: Callable[[], None] = _sched_yield, step_aside: StepAside | None = _step_aside
    ) -> None:
        self._yield_core = yield_core
        self._step_aside = step_aside
        self._bulk_in_a_row = 0

    def is_bulk(self, records: int) -> bool:
        """Whether requests that came together, with so many records, are those of a producer in no hurry."""
        if records >= MANY_RECORDS:
            self._bulk_in_a_row += 1
            return True
        self._bulk_in_a_row = 0
        return False

    def give_way(self, neighbour: socket.socket | None = None) -> None:
        """Before receiving from such a producer again; ``neighbour`` is its socket, if it is on this machine."""
        if self._bulk_in_a_row < PATIENCE:
            return
        self._yield_core()
        if neighbour is not None and self._step_aside is not None and self._bulk_in_a_row % ARRIVALS_A_STEP == 0:
            self._step_aside(neighbour)
