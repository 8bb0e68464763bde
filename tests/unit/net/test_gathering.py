from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.net.gathering import ENOUGH_BYTES, EVERY_S, TO_BE_SURE, Gathering


class Timers:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self._due: Callable[[], None] | None = None

    def call_later(self, delay: float, call: Callable[[], None]) -> Any:
        assert delay == EVERY_S
        assert self._due is None, "one timer is enough"
        self._due = call
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self._due = None

    @property
    def is_running(self) -> bool:
        return self._due is not None

    def pass_once(self) -> None:
        call, self._due = self._due, None
        assert call is not None
        call()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as theirs:
        ours, _ = server.accept()
        with ours:
            ours.setblocking(False)
            yield ours, theirs


@pytest.fixture
def looks() -> list[None]:
    return []


@pytest.fixture
def gathering(timers: Timers, pair: tuple[socket.socket, socket.socket], looks: list[None]) -> Gathering:
    loop: Any = timers
    return Gathering(loop, pair[0], lambda: looks.append(None))


def test_it_looks_where_nothing_has_called(gathering: Gathering, timers: Timers, looks: list[None]) -> None:
    timers.pass_once()
    assert len(looks) == 1
    gathering.is_awaited(has_begun_another=True)  # the kernel has called for us
    timers.pass_once()
    assert len(looks) == 1
    timers.pass_once()
    assert len(looks) == 2


def test_the_kernel_calls_for_many_bytes_or_for_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    called = 0

    async def calls_within(seconds: float) -> int:
        def on_readable() -> None:
            nonlocal called
            called += 1
            loop.remove_reader(ours)
            done.set()

        nonlocal called
        called = 0
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(ours, on_readable)
        try:
            await asyncio.wait_for(done.wait(), seconds)
        except TimeoutError:
            loop.remove_reader(ours)
        return called

    async def play() -> None:
        loop: Any = Timers()
        gathering = Gathering(loop, ours, lambda: None)
        theirs.sendall(bytes(1000))
        assert await calls_within(0.05) == 0
        assert len(ours.recv(2000)) == 1000  # whoever looks finds them all the same
        theirs.sendall(bytes(ENOUGH_BYTES))
        assert await calls_within(10) == 1
        while True:
            try:
                ours.recv(1 << 20)
            except BlockingIOError:
                break
        gathering.end()
        theirs.sendall(b"x")
        assert await calls_within(10) == 1
        ours.recv(1)
        Gathering(loop, ours, lambda: None)
        theirs.close()
        assert await calls_within(10) == 1

    asyncio.run(play())


def test_a_peer_that_sends_nothing_while_we_work_is_one_that_waits(gathering: Gathering) -> None:
    for _ in range(TO_BE_SURE - 1):
        assert not gathering.is_awaited(has_begun_another=False)
    assert gathering.is_awaited(has_begun_another=False)


def test_a_peer_that_is_silent_now_and_then_is_not(
    gathering: Gathering, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    for _ in range(TO_BE_SURE):
        assert not gathering.is_awaited(has_begun_another=False)
        assert not gathering.is_awaited(has_begun_another=True)
    theirs.sendall(b"more")
    while not _is_there(ours):
        pass
    for _ in range(2 * TO_BE_SURE):
        assert not gathering.is_awaited(has_begun_another=False)
    assert ours.recv(10) == b"more"  # it was only looked at


def _is_there(ours: socket.socket) -> bool:
    try:
        return bool(ours.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_it_is_over_after_looks_in_vain(gathering: Gathering) -> None:
    for _ in range(TO_BE_SURE - 1):
        assert not gathering.is_over()
    gathering.is_awaited(has_begun_another=True)
    for _ in range(TO_BE_SURE - 1):
        assert not gathering.is_over()
    assert gathering.is_over()


def test_when_it_ends_nobody_looks_any_more(
    gathering: Gathering, timers: Timers, pair: tuple[socket.socket, socket.socket]
) -> None:
    gathering.end()
    assert not timers.is_running
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


def test_a_socket_that_is_gone_is_no_matter(gathering: Gathering, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].close()
    assert not gathering.is_awaited(has_begun_another=False)
    gathering.end()
