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
    def __init__(self) -> None:
        self.yields = 0
        self.steps: list[socket.socket] = []

    def courtesy(self) -> Courtesy:
        return Courtesy(self._give_up, self.steps.append)

    def _give_up(self) -> None:
        self.yields += 1


def arrivals(courtesy: Courtesy, count: int, records: int = MANY_RECORDS) -> None:
    for _ in range(count):
        courtesy.is_bulk(records)


def test_it_keeps_its_core_until_nothing_but_bulk_has_come_for_a_while() -> None:
    core = Core()
    courtesy = core.courtesy()
    arrivals(courtesy, PATIENCE - 1)
    courtesy.give_way()
    assert core.yields == 0
    arrivals(courtesy, 1)
    courtesy.give_way()
    assert core.yields == 1


def test_one_small_request_ends_it() -> None:
    core = Core()
    courtesy = core.courtesy()
    arrivals(courtesy, PATIENCE)
    assert not courtesy.is_bulk(MANY_RECORDS - 1)
    arrivals(courtesy, PATIENCE - 1)
    courtesy.give_way()
    assert core.yields == 0


def test_it_steps_aside_for_neighbours_alone_and_now_and_then() -> None:
    core = Core()
    courtesy = core.courtesy()
    arrivals(courtesy, PATIENCE)
    courtesy.give_way()
    assert not core.steps
    with socket.socket() as neighbour:
        for _ in range(3 * ARRIVALS_A_STEP):
            courtesy.give_way(neighbour)
            arrivals(courtesy, 1)
        assert core.steps == [neighbour] * 3


def test_the_systems_own_ways_are_at_hand() -> None:
    courtesy = Courtesy()
    arrivals(courtesy, PATIENCE)
    with socket.socket() as neighbour:
        courtesy.give_way(neighbour)


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
