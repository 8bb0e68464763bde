"""The result type of ``decide`` in decide-and-replay machines (metadata, group, txn)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

NEVER_MS = 1 << 62


class Tick(Struct, frozen=True):
    """Submitted by the runtime when the next deadline of the machine is due."""

    wall_ms: int


class TimerFired(Struct, frozen=True):
    """Submitted by the runtime when a timer that a decision asked for is due."""

    name: str


class Decision(Struct):
    """What a machine decided about one request.

    Durable state has not changed yet: it does when the runtime has appended ``records`` and replayed them.
    """

    records: Sequence[Any] = ()
    replies: list[tuple[object, Any]] = field(default_factory=list)
    """(token of a waiting request, its response): released when the high watermark passes what was seen."""
    timers: Sequence[tuple[str, int]] = ()
    """(name, monotonic deadline): the runtime submits ``TimerFired(name)`` then. A name stands for one timer."""
    effects: Sequence[Any] = ()
    """What the runtime is asked to do outside, once the records are committed."""
    in_memory: bool = False
    """What is not durable has changed too, and must be loaded anew should the records not be appended."""
