"""Parked requests: a fetch waits for bytes, a produce for its acknowledgement, a deletion for open transactions.

A parked fetch counts the bytes appended to its partitions and reads none of them until it has enough or times out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.model.errors import ErrorCode
from barnabas.model.ports import Clock, Timer
from barnabas.runtime.partition import Partition


class DelayedFetch:
    """Calls ``finish`` once: when enough bytes can be seen, something else happened, or time is up."""

    __slots__ = ("_finish", "_missing_bytes", "_offsets", "_partitions", "_timer", "_unstable_bytes")

    def __init__(
        self,
        partitions: Iterable[tuple[Partition, int]],
        missing_bytes: int,
        deadline_ms: int,
        clock: Clock,
        finish: Callable[[], None],
        *,
        committed_only: bool,
        by_follower: bool = False,
    ) -> None:
        self._partitions = dict(partitions)
        self._offsets = self._partitions if committed_only else None
        """Read-committed: a partition counts only once its last stable offset has passed where the reader stands."""
        self._unstable_bytes: dict[Partition, int] = {}
        """What has grown meanwhile: it can be seen when the transaction ends."""
        self._missing_bytes = missing_bytes
        self._finish: Callable[[], None] | None = finish
        for partition in self._partitions:
            partition.add_fetch(self, by_follower=by_follower)
        self._timer: Timer = clock.call_at(deadline_ms, self.disturbed)

    def grown(self, partition: Partition, grown_bytes: int) -> None:
        if self._offsets is not None:
            grown_bytes += self._unstable_bytes.pop(partition, 0)
            if partition.visible_end(committed_only=True) <= self._offsets[partition]:
                self._unstable_bytes[partition] = grown_bytes
                return
        self._missing_bytes -= grown_bytes
        if self._missing_bytes <= 0:
            self.disturbed()

    def disturbed(self) -> None:
        finish = self.cancel()
        if finish is not None:
            finish()

    def cancel(self) -> Callable[[], None] | None:
        """The client has gone, or all that the request waited for has happened."""
        finish, self._finish = self._finish, None
        if finish is not None:
            self._timer.cancel()
            for partition in self._partitions:
                partition.remove_fetch(self)
        return finish


class DelayedDeletion:
    """Calls ``then`` once: when all before the offset is stable, something else happened, or time is up."""

    __slots__ = ("_offset", "_partition", "_then", "_timer")

    def __init__(
        self, partition: Partition, offset: int, deadline_ms: int, clock: Clock, then: Callable[[], None]
    ) -> None:
        self._partition = partition
        self._offset = offset
        self._then = then
        self._timer: Timer = clock.call_at(deadline_ms, self.disturbed)
        partition.add_fetch(self)

    def grown(self, partition: Partition, grown_bytes: int) -> None:
        if partition.last_stable_offset >= self._offset:
            self.disturbed()

    def disturbed(self) -> None:
        self._timer.cancel()
        self._partition.remove_fetch(self)
        self._then()


class DelayedProduce:
    """Calls ``finish`` once all partitions have told their outcome; a late one counts as REQUEST_TIMED_OUT."""

    __slots__ = ("_finish", "_outcomes", "_timer", "_waiting")

    def __init__(
        self, count: int, deadline_ms: int, clock: Clock, finish: Callable[[dict[int, ErrorCode]], None]
    ) -> None:
        self._waiting = set(range(count))
        """Slots, the caller's numbers for the partitions of the request, whose outcome is not known yet."""
        self._outcomes: dict[int, ErrorCode] = {}
        self._finish: Callable[[dict[int, ErrorCode]], None] | None = finish
        self._timer: Timer = clock.call_at(deadline_ms, self._expire)

    def outcome_of(self, slot: int) -> Callable[[ErrorCode], None]:
        return lambda outcome: self._told(slot, outcome)

    def _told(self, slot: int, outcome: ErrorCode) -> None:
        self._outcomes[slot] = outcome
        self._waiting.discard(slot)
        if not self._waiting:
            self._end()

    def _expire(self) -> None:
        for slot in self._waiting:
            self._outcomes[slot] = ErrorCode.REQUEST_TIMED_OUT
        self._end()

    def _end(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            self._timer.cancel()
            finish(self._outcomes)
