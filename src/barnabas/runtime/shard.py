"""The shard runtime: connects a decide-and-replay machine to its log.

For each request: decide, append the records, replay them, and hold the reply until the high watermark has passed the
last offset that the decision depends on, so that no reply shows what a failover may undo. The effects of a decision
are carried out then too. Timers that a decision asks for come back to the machine as requests. When the log goes
offline, all waiting requests get the error and the shard ends, with its timers; later it is loaded again from its log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from barnabas.core.decision import Decision, TimerFired
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Clock, DiskError, Timer
from barnabas.storage.errors import LogOffline

Then = Callable[[Any], None]
"""Takes a response, or the ApiError that stands for it."""


class Journaled(Struct, frozen=True):
    """Where records were appended."""

    next_offset: int
    leader_epoch: int
    timestamp_ms: int


class Journal(Protocol):
    """The log under a shard."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def append(self, records: Sequence[Any]) -> Journaled: ...


class Machine(Protocol):
    def decide(self, token: object, request: object, now_ms: int) -> Decision: ...

    def replay(self, records: Sequence[Any], *, next_offset: int, raft_epoch: int, timestamp_ms: int) -> Any: ...


class _Waiting(Struct):
    offset: int
    """Released when the high watermark reaches this."""
    replies: list[tuple[Then, Any]]
    committed: Callable[[], None] | None
    effects: Sequence[Any]


class Shard:
    def __init__(
        self,
        machine: Machine,
        journal: Journal,
        clock: Clock,
        on_commit: Callable[[Any], None] | None = None,
        on_failed_append: Callable[[], None] | None = None,
        on_effects: Callable[[Sequence[Any]], None] | None = None,
    ) -> None:
        self.machine = machine
        self._journal = journal
        self._clock = clock
        self._on_commit = on_commit
        """Called with what replay returned, in order, once that is committed."""
        self._on_failed_append = on_failed_append
        """A machine with state in memory must be loaded anew: the decision that came to nothing changed it."""
        self._on_effects = on_effects
        """Called with the effects of a decision once its records are committed."""
        self._waiting: deque[_Waiting] = deque()
        self._failure: ApiError | None = None
        self._timers: dict[str, Timer] = {}

    def submit(self, request: object, then: Then) -> None:
        if self._failure is not None:
            then(self._failure)
            return
        try:
            decision = self.machine.decide(then, request, self._clock.monotonic_ms())
        except ApiError as problem:
            then(problem)
            return
        for name, deadline_ms in decision.timers:
            self._set_timer(name, deadline_ms)
        replies = [(_as_then(token), response) for token, response in decision.replies]
        before = self._journal.log_end_offset
        try:
            committed = self._append(decision.records) if decision.records else None
        except (ApiError, DiskError) as problem:
            # The journal has nothing of the decision, and durable state has not changed: the next one may succeed.
            is_torn = self._journal.log_end_offset != before
            self._not_appended(replies, _as_api_error(problem), decision.in_memory or is_torn)
            return
        except LogOffline as problem:
            failure = _as_api_error(problem)
            self.fail(failure)
            self._not_appended(replies, failure, reload=True)
            return
        self._waiting.append(_Waiting(self._journal.log_end_offset, replies, committed, decision.effects))
        self.advance()

    def _set_timer(self, name: str, deadline_ms: int) -> None:
        """Asked for in memory: it runs whether or not the records of the decision are appended."""
        running = self._timers.pop(name, None)
        if running is not None:
            running.cancel()
        self._timers[name] = self._clock.call_at(deadline_ms, lambda: self._on_timer(name))

    def _on_timer(self, name: str) -> None:
        del self._timers[name]
        self.submit(TimerFired(name), lambda _: None)

    def _not_appended(self, replies: list[tuple[Then, Any]], problem: ApiError, reload: bool) -> None:
        if reload and self._on_failed_append is not None:
            self._on_failed_append()
        for then, _ in replies:
            then(problem)

    def _append(self, records: Sequence[Any]) -> Callable[[], None] | None:
        journaled = self._journal.append(records)
        result = self.machine.replay(
            records,
            next_offset=journaled.next_offset,
            raft_epoch=journaled.leader_epoch,
            timestamp_ms=journaled.timestamp_ms,
        )
        if self._on_commit is None:
            return None
        on_commit = self._on_commit
        return lambda: on_commit(result)

    def advance(self) -> None:
        """The high watermark may have moved."""
        while self._waiting and self._waiting[0].offset <= self._journal.high_watermark:
            waiting = self._waiting.popleft()
            if waiting.committed is not None:
                waiting.committed()
            for then, response in waiting.replies:
                then(response)
            if waiting.effects and self._on_effects is not None:
                self._on_effects(waiting.effects)

    @property
    def is_waiting(self) -> bool:
        """Whether replies wait for the high watermark."""
        return bool(self._waiting)

    def fail(self, problem: ApiError) -> None:
        """The log cannot be appended to: all waiting requests get the error, and the shard decides no more."""
        self._failure = problem
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.refuse_waiting(problem)
        self._waiting.clear()

    def refuse_waiting(self, problem: ApiError) -> None:
        """Answers waiting requests with an error: their records are in the log, but are not known to be committed.

        Effects still wait for that: nobody will ask for them again.
        """
        waiting, self._waiting = self._waiting, deque(entry for entry in self._waiting if entry.effects)
        for entry in waiting:
            replies, entry.replies = entry.replies, []
            for then, _ in replies:
                then(problem)


def _as_api_error(problem: Exception) -> ApiError:
    return problem if isinstance(problem, ApiError) else ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem))


def _as_then(token: object) -> Then:
    return token  # type: ignore[return-value]  # tokens are opaque to machines; ours are the callbacks
