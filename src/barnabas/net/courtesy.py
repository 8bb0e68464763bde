"""Giving way to those who fill our sockets.

A producer of large batches that runs beside us on the same cores wakes us with every request: we take its core, find
that one request, answer and sleep again, thousands of times a second. Whoever yields the core first finds several
requests, and answers them with one call. On a core that nobody else wants, yielding takes half a microsecond and
changes nothing.

It is only for producers that have waited to fill a batch, and only while nothing else is asked of us: on a core that is
wanted, giving way may cost the next request a turn of the scheduler (3 ms).
"""

from __future__ import annotations

import os
from collections.abc import Callable

MANY_RECORDS = 100
"""Whoever sends as many at once has waited for them, and is in no hurry."""
PATIENCE = 64
"""Arrivals of many records, and of nothing else, before we give way: some 30 ms of them."""


_sched_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Courtesy:
    """What all connections of a loop know of each other."""

    __slots__ = ("_bulk_in_a_row", "_yield_core")

    def __init__(self, yield_core: Callable[[], None] = _sched_yield) -> None:
        self._yield_core = yield_core
        self._bulk_in_a_row = 0

    def is_bulk(self, records: int) -> bool:
        """Whether requests that came together, with so many records, are those of a producer in no hurry."""
        if records >= MANY_RECORDS:
            self._bulk_in_a_row += 1
            return True
        self._bulk_in_a_row = 0
        return False

    def give_way(self) -> None:
        """Before receiving from such a producer again."""
        if self._bulk_in_a_row >= PATIENCE:
            self._yield_core()
