"""What a connection asks of the loop: to be called only when there is something to do."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.net.connection import Connection
from barnabas.net.outbox import COPY_LIMIT
from barnabas.storage.reading import FileRange

SIZE = COPY_LIMIT + 1


class Loop:
    """Keeps what is watched; readiness is the test's."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        self.readers[fd] = call

    def add_writer(self, fd: int, call: Callable[[], None]) -> None:
        self.writers[fd] = call

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def remove_writer(self, fd: int) -> None:
        self.writers.pop(fd, None)


class OnDisk:
    """A file of which nothing is cached until it has been read ahead."""

    path = "on disk"

    def __init__(self) -> None:
        self.is_read = False

    def read_cached_into(self, buffer: memoryview, offset: int) -> int | None:
        if not self.is_read:
            return None
        buffer[:] = bytes(len(buffer))
        return len(buffer)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_a_socket_with_room_is_not_watched_while_the_disk_is_waited_for(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    loop, waiting = Loop(), []
    listener: Any = SimpleNamespace(
        name="PLAINTEXT",
        loop=loop,
        apis={},
        pieces=memoryview(bytearray(SIZE)),
        now=lambda: 0.0,
        limits=SimpleNamespace(buffered_bytes=0),
        forget=lambda connection: None,
        read_ahead=lambda chunk, then: waiting.append(then),
    )
    connection = Connection(listener, ours, "127.0.0.1")
    file: Any = OnDisk()
    before = bytes(8 << 20)  # more than a socket takes at once
    connection._out.put([before, FileRange(file, 0, SIZE)], len(before) + SIZE)

    connection._send()
    assert loop.writers
    got = 0
    while not waiting:
        got += len(theirs.recv(1 << 20))
        loop.writers[ours.fileno()]()
    assert not loop.writers

    file.is_read = True
    waiting.pop()()
    while got < len(before) + SIZE:
        got += len(theirs.recv(1 << 20))
        for call in list(loop.writers.values()):
            call()
    assert not loop.writers
    connection.close()
    assert not loop.readers
