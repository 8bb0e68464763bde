"""Timers of decide-and-replay machines, which the shard carries out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.core.decision import Decision, TimerFired
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import DiskError
from barnabas.runtime.shard import Journaled, Shard


class FakeTimer:
    def __init__(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms, self.callback, self.is_cancelled = deadline_ms, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeClock:
    def __init__(self) -> None:
        self.at_ms = 0
        self.timers: list[FakeTimer] = []

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms

    def monotonic_ns(self) -> int:
        return self.at_ms * 1_000_000

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(deadline_ms, callback))
        return self.timers[-1]

    def advance(self, to_ms: int) -> None:
        self.at_ms = to_ms
        due = [timer for timer in self.timers if timer.deadline_ms <= to_ms and not timer.is_cancelled]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            timer.callback()


class FakeJournal:
    log_end_offset = high_watermark = 0
    is_full = False

    def append(self, records: Sequence[Any]) -> Journaled:
        if self.is_full:
            raise DiskError("write", "/log", "full")
        return Journaled(0, 0, 0)


class FakeMachine:
    """Each request is the timers to ask for."""

    def __init__(self) -> None:
        self.fired: list[tuple[str, int]] = []

    def decide(self, token: object, request: Any, now_ms: int) -> Decision:
        if isinstance(request, TimerFired):
            self.fired.append((request.name, now_ms))
            return Decision(replies=[(token, None)])
        return Decision(records=["record"], replies=[(token, "reply")], timers=request)

    def replay(self, records: Sequence[Any], **_: int) -> None:
        pass


def make() -> tuple[Shard, FakeMachine, FakeClock, FakeJournal]:
    machine, clock, journal = FakeMachine(), FakeClock(), FakeJournal()
    return Shard(machine, journal, clock), machine, clock, journal


def test_a_timer_comes_back_as_a_request() -> None:
    shard, machine, clock, _ = make()
    shard.submit([("a", 5), ("b", 7)], lambda _: None)
    clock.advance(4)
    assert machine.fired == []
    clock.advance(7)
    assert machine.fired == [("a", 7), ("b", 7)]
    clock.advance(100)
    assert len(machine.fired) == 2


def test_a_name_is_one_timer() -> None:
    shard, machine, clock, _ = make()
    shard.submit([("a", 5)], lambda _: None)
    shard.submit([("a", 9)], lambda _: None)
    clock.advance(5)
    assert machine.fired == []
    clock.advance(9)
    assert machine.fired == [("a", 9)]


def test_a_failed_append_keeps_the_timer() -> None:
    shard, machine, clock, journal = make()
    journal.is_full = True
    answers: list[Any] = []
    shard.submit([("a", 5)], answers.append)
    assert isinstance(answers[0], ApiError)
    clock.advance(5)
    assert machine.fired == [("a", 5)]


def test_timers_end_with_the_shard() -> None:
    shard, machine, clock, _ = make()
    shard.submit([("a", 5)], lambda _: None)
    shard.fail(ApiError(ErrorCode.NOT_CONTROLLER))
    clock.advance(5)
    assert machine.fired == []
