"""When a connection sends, and that it registers with the loop only while there is something to do."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.app.clock import LoopClock
from barnabas.net import connection as module
from barnabas.net.channel import PlainChannel
from barnabas.net.connection import WINDOW, Connection
from barnabas.net.outbox import COPY_LIMIT
from barnabas.runtime.pipeline import Api, Loaded, Pipeline
from barnabas.storage.log_read import FileRange
from barnabas.wire import header
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.reliability.raw import frame

SIZE = COPY_LIMIT + 1
ANSWER = b"".join(header.frame_response(ApiVersionsResponse(), 0, 1))


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


def listener_of(loop: Loop, **more: Any) -> Any:
    return SimpleNamespace(
        name="PLAINTEXT",
        loop=loop,
        pipeline=Pipeline({}, LoopClock(loop), report=lambda *_, **__: None),  # type: ignore[arg-type]
        pieces=memoryview(bytearray(SIZE)),
        scratch_view=memoryview(bytearray(SIZE)),
        now=lambda: 0.0,
        limits=SimpleNamespace(buffered_bytes=0, max_frame_bytes=SIZE),
        forget=lambda connection: None,
        **more,
    )


def connect(listener: Any, sock: socket.socket) -> Connection:
    return Connection(listener, PlainChannel(sock, listener.loop, "127.0.0.1"), "127.0.0.1")


def test_of_requests_that_come_together_the_first_are_answered_before_the_last_are_handled(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    seen: list[int] = []

    def handle(exchange: Any, request: ApiVersionsRequest) -> ApiVersionsResponse:
        seen.append(answers_waiting())
        return ApiVersionsResponse()

    def answers_waiting() -> int:
        try:
            return len(theirs.recv(1 << 20, socket.MSG_PEEK)) // len(ANSWER)
        except BlockingIOError:
            return 0

    def answered_when_handled(count: int) -> list[int]:
        """How many answers the peer had when each of so many requests was handled."""
        seen.clear()
        theirs.sendall(frame(ApiVersionsRequest(), 0) * count)
        loop.readers[ours.fileno()]()
        assert len(theirs.recv(1 << 20)) == count * len(ANSWER)
        return seen

    loop = Loop()
    listener = listener_of(loop)
    listener.pipeline.apis[18] = Api(
        key=18, name="ApiVersions", min_version=0, max_version=0, load=lambda: Loaded(ApiVersionsRequest, handle)
    )
    connection = connect(listener, ours)
    assert answered_when_handled(1) == [0]
    assert answered_when_handled(3) == [0, 1, 2]
    assert answered_when_handled(WINDOW) == [0, 1, 2, 2, 4]
    assert answered_when_handled(9) == [0, 1, 2, 2, 4, 4, 4, 4, 8]
    # Whoever has had so many in flight does not wait for answers.
    assert answered_when_handled(3) == [0, 0, 0]
    connection.close()


def test_a_socket_with_room_is_not_watched_while_the_disk_is_waited_for(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    loop, waiting = Loop(), []
    listener = listener_of(loop, read_ahead=lambda chunk, then: waiting.append(then))
    connection = connect(listener, ours)
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


def no_memory(size: int) -> bytearray:
    raise MemoryError


@pytest.mark.parametrize("received", [10, 1 << 20], ids=["a first buffer", "a larger buffer"])
def test_without_memory_for_a_frame_its_connection_is_closed(
    sockets: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, received: int
) -> None:
    ours, theirs = sockets
    loop, reasons = Loop(), []
    listener = listener_of(loop, report_refusal=lambda _connection, reason: reasons.append(reason))
    listener.limits.max_frame_bytes = 8 << 20
    listener.limits.has_room = lambda more_bytes: True
    connection = connect(listener, ours)
    theirs.send(struct.pack(">i", 4 << 20) + bytes(6))
    sent = 10
    while sent < received:
        loop.readers[ours.fileno()]()
        sent += theirs.send(bytes(min(100_000, received - sent)))
    monkeypatch.setattr(module, "bytearray", no_memory, raising=False)
    loop.readers[ours.fileno()]()
    if connection.is_open:
        theirs.send(b"more")
        loop.readers[ours.fileno()]()
    assert not connection.is_open
    assert loop.readers == {}
    assert reasons == ["there is no memory for the rest of its frame"]
