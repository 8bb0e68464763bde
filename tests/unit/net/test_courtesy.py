from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from barnabas.net import courtesy as module
from barnabas.net.courtesy import ARRIVALS_A_STEP, MANY_RECORDS, PATIENCE, Courtesy

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells on which core a peer sends")


class Core:
    """What is asked of the system."""

    def __init__(self) -> None:
        self.turns: list[bool] = []
        self.steps: list[socket.socket] = []
        self.allows = True

    def courtesy(self) -> Courtesy:
        return Courtesy(self.steps.append, self._wait_for_turn)

    def _wait_for_turn(self, wanted: bool) -> bool:
        self.turns.append(wanted)
        return self.allows


@pytest.fixture
def neighbour() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        yield sock


def arrivals(courtesy: Courtesy, count: int, records: int = MANY_RECORDS) -> None:
    for _ in range(count):
        courtesy.is_bulk(records)


def test_it_is_due_when_nothing_but_bulk_has_come_for_a_while() -> None:
    courtesy = Core().courtesy()
    arrivals(courtesy, PATIENCE - 1)
    assert not courtesy.is_due
    arrivals(courtesy, 1)
    assert courtesy.is_due


def test_one_small_request_ends_it(neighbour: socket.socket) -> None:
    core = Core()
    courtesy = core.courtesy()
    arrivals(courtesy, PATIENCE)
    courtesy.make_way(neighbour)
    assert not courtesy.is_bulk(MANY_RECORDS - 1)
    assert core.turns == [True, False]
    arrivals(courtesy, PATIENCE - 1)
    assert not courtesy.is_due


def test_it_waits_for_its_turn_once_and_for_all(neighbour: socket.socket) -> None:
    core = Core()
    courtesy = core.courtesy()
    arrivals(courtesy, PATIENCE)
    for _ in range(10):
        courtesy.make_way(neighbour)
    assert core.turns == [True]


def test_what_could_not_be_begun_is_not_ended(neighbour: socket.socket) -> None:
    core = Core()
    core.allows = False
    courtesy = core.courtesy()
    arrivals(courtesy, PATIENCE)
    courtesy.make_way(neighbour)
    courtesy.start_over()
    assert core.turns == [True]


def test_it_steps_aside_now_and_then(neighbour: socket.socket) -> None:
    core = Core()
    courtesy = core.courtesy()
    arrivals(courtesy, PATIENCE)
    for _ in range(3 * ARRIVALS_A_STEP):
        courtesy.make_way(neighbour)
        arrivals(courtesy, 1)
    assert core.steps == [neighbour] * 3


def test_the_systems_own_ways_are_at_hand(neighbour: socket.socket) -> None:
    courtesy = Courtesy()
    arrivals(courtesy, PATIENCE)
    courtesy.make_way(neighbour)
    courtesy.start_over()


@linux
def test_a_thread_waits_for_its_turn_and_then_no_more(neighbour: socket.socket) -> None:
    courtesy = Courtesy()
    before = os.sched_getscheduler(0)
    assert before == os.SCHED_OTHER, "the tests themselves run by another policy"
    arrivals(courtesy, PATIENCE)
    courtesy.make_way(neighbour)
    assert os.sched_getscheduler(0) == os.SCHED_BATCH
    courtesy.start_over()
    assert os.sched_getscheduler(0) == before


@linux
def test_a_policy_that_the_user_chose_stays(neighbour: socket.socket) -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        courtesy = Courtesy()
        arrivals(courtesy, PATIENCE)
        courtesy.make_way(neighbour)
        courtesy.start_over()
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@linux
def test_a_system_that_does_not_allow_it_is_let_be(neighbour: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert module._wait_for_turn is not None
    assert not module._wait_for_turn(True)


@pytest.fixture
def own_core() -> Iterator[int]:
    """The test's thread stays on one core for as long as the test runs."""
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    os.sched_setaffinity(0, {core})
    yield core
    os.sched_setaffinity(0, allowed)


@linux
@pytest.mark.parametrize("others", [{1000}, set()])
def test_a_step_leaves_the_core_on_which_the_neighbour_sends(
    own_core: int, others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[set[int]] = []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as neighbour:
        ours, _ = server.accept()
        with ours:
            neighbour.sendall(b"from this core")
            ours.recv(100)
            monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {own_core} | others)
            monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: moves.append(cores))
            assert module._step_aside is not None
            module._step_aside(ours)
            monkeypatch.undo()
    assert moves == ([others, {own_core} | others] if others else [])


@linux
def test_a_step_leaves_the_thread_as_free_as_it_was() -> None:
    allowed = os.sched_getaffinity(0)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as neighbour:
        ours, _ = server.accept()
        with ours:
            for _ in range(100):
                neighbour.sendall(b"from whatever core")
                ours.recv(100)
                assert module._step_aside is not None
                module._step_aside(ours)
                assert os.sched_getaffinity(0) == allowed
