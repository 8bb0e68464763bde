"""Consideration for producers that fill our sockets from the same cores.

A producer of large batches that runs beside us makes messages on one thread and sends them on another, and wakes us
with every request. Whose core we then take, and how often, decides what producing costs it: where its sending thread
falls behind, messages pile up between the two and have left the processor's cache by when they are sent.

So while nothing but large batches is asked of us, by a producer on this machine that does not wait for our answers, we

- wait for our turn: the kernel does not interrupt others for us (``SCHED_BATCH``),
- step aside: we leave the core on which the producer sends,
- and take its requests in by the handful (``gathering.py``).

On cores that nobody else wants the first two change nothing.
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
"""Arrivals of many records, and of nothing else, before we make way: some 30 ms of them."""
ARRIVALS_A_STEP = 4
"""Between two looks at where we run."""

StepAside: TypeAlias = Callable[[socket.socket], None]
WaitForTurn: TypeAlias = Callable[[bool], bool]
"""Begins (True) or ends it for the calling thread; tells whether it could."""


def _waiting_for_turn() -> WaitForTurn | None:
    """None where the system has no such thing."""
    usual: int | None = getattr(os, "SCHED_OTHER", None)
    patient: int | None = getattr(os, "SCHED_BATCH", None)
    if usual is None or patient is None:
        return None

    def wait_for_turn(wanted: bool) -> bool:
        before, after = (usual, patient) if wanted else (patient, usual)
        try:
            if os.sched_getscheduler(0) != before:  # the user's own choice is not ours to change
                return False
            os.sched_setscheduler(0, after, os.sched_param(0))
        except OSError:  # not allowed here
            return False
        return True

    return wait_for_turn


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
_wait_for_turn = _waiting_for_turn()


class Courtesy:
    """What all connections of a loop know of each other."""

    __slots__ = ("_bulk_in_a_row", "_step_aside", "_wait_for_turn", "_waits")

    def __init__(
        self, step_aside: StepAside | None = _step_aside, wait_for_turn: WaitForTurn | None = _wait_for_turn
    ) -> None:
        self._step_aside = step_aside
        self._wait_for_turn = wait_for_turn
        self._waits = False
        self._bulk_in_a_row = 0

    def is_bulk(self, records: int) -> bool:
        """Whether requests that came together, with so many records, are those of a producer in no hurry."""
        if records >= MANY_RECORDS:
            self._bulk_in_a_row += 1
            return True
        if self._bulk_in_a_row:
            self.start_over()
        return False

    @property
    def is_due(self) -> bool:
        return self._bulk_in_a_row >= PATIENCE

    def make_way(self, neighbour: socket.socket) -> None:
        """While it is due, at every arrival; ``neighbour`` is the socket of a producer on this machine."""
        if not self._waits and self._wait_for_turn is not None:
            self._waits = self._wait_for_turn(True)
        if self._step_aside is not None and self._bulk_in_a_row % ARRIVALS_A_STEP == 0:
            self._step_aside(neighbour)

    def start_over(self) -> None:
        """Something else was asked of us, or nothing."""
        self._bulk_in_a_row = 0
        if self._waits and self._wait_for_turn is not None:
            self._wait_for_turn(False)
            self._waits = False
