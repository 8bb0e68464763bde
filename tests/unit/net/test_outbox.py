"""What is put into an outbox comes out of the socket: all, once, in order, whatever the socket takes at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.app.os_disk import OsDisk
from barnabas.model.ports import DiskError, File
from barnabas.net.channel import PlainChannel
from barnabas.net.outbox import COPY_LIMIT, PIECE_BYTES, Outbox, Sent
from barnabas.storage.log_read import FileRange

CONTENT = bytes(range(251)) * 4000  # about a megabyte, and no two pages alike

SCRATCH = memoryview(bytearray(PIECE_BYTES))
BITS = memoryview(bytearray(50_000))

WAYS = pytest.mark.parametrize("scratch", [None, SCRATCH, BITS], ids=["sendfile", "copy", "bits"])


class Peers:
    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        for each in (self.ours, self.theirs):
            each.setblocking(False)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
        loop: Any = None  # an outbox does not wait
        self.channel = PlainChannel(self.ours, loop, "")

    def read(self) -> bytes:
        got = bytearray()
        try:
            while data := self.theirs.recv(1 << 16):
                got += data
        except BlockingIOError:
            pass
        return bytes(got)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def peers() -> Iterator[Peers]:
    both = Peers()
    yield both
    both.close()


@pytest.fixture
def file(tmp_path: Path) -> File:
    (tmp_path / "log").write_bytes(CONTENT)
    return OsDisk().open(str(tmp_path / "log"))


def drain(outbox: Outbox, peers: Peers) -> bytes:
    got = bytearray()
    while outbox.send() is Sent.SOCKET_FULL:
        got += peers.read()
    return bytes(got + peers.read())


def test_a_reply_that_fits_is_out_at_once(peers: Peers) -> None:
    outbox = Outbox(peers.channel, None)
    outbox.put_reply(b"reply")
    assert outbox.size == 5
    assert outbox.send() is Sent.ALL
    assert outbox.size == 0
    assert peers.read() == b"reply"


pieces = st.one_of(
    st.binary(min_size=1, max_size=40_000).map(bytes),
    st.binary(min_size=1, max_size=500).map(lambda data: memoryview(bytearray(data))),
    st.tuples(st.integers(0, 500_000), st.integers(1, 2 * COPY_LIMIT)),
)


@WAYS
@given(st.lists(pieces, max_size=80))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_everything_comes_out_in_order(file: File, scratch: memoryview | None, chosen: list[Any]) -> None:
    peers = Peers()
    outbox = Outbox(peers.channel, scratch)
    expected, got = bytearray(), bytearray()
    for number, piece in enumerate(chosen):
        if isinstance(piece, tuple):
            position, size = piece
            outbox.put([FileRange(file, position, size, is_hot=True)], size)
            expected += CONTENT[position : position + size]
        else:
            outbox.put([piece], len(piece))
            expected += piece
        if number % 7 == 0:
            outbox.send()
            got += peers.read()
    got += drain(outbox, peers)
    peers.close()
    assert got == expected
    assert outbox.size == 0


class Cold:
    """A file of which nothing is in the page cache until it is read ahead."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path
        self.warm = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def is_cached(self, size: int, offset: int) -> bool:
        return self.warm

    def read_cached_into(self, buffer: bytearray | memoryview, offset: int) -> int | None:
        return self._file.read_cached_into(buffer, offset) if self.warm else None


@WAYS
@pytest.mark.parametrize("size", [1000, COPY_LIMIT + 1])
def test_a_range_on_the_disk_is_waited_for_and_nothing_overtakes_it(
    peers: Peers, file: File, scratch: memoryview | None, size: int
) -> None:
    cold: Any = Cold(file)
    outbox = Outbox(peers.channel, scratch)
    chunk = FileRange(cold, 10, size)
    outbox.put([b"head", chunk, b"tail"], size + 8)
    assert outbox.send() is Sent.NOT_CACHED
    assert outbox.first is chunk
    assert peers.read() == b"head"
    cold.warm = True
    assert drain(outbox, peers) == CONTENT[10 : 10 + size] + b"tail"


def test_a_range_that_was_read_ahead_and_is_gone_again_is_sent_all_the_same(peers: Peers, file: File) -> None:
    cold: Any = Cold(file)
    outbox = Outbox(peers.channel, SCRATCH)
    outbox.put([FileRange(cold, 10, COPY_LIMIT + 1, is_hot=True)], COPY_LIMIT + 1)
    assert drain(outbox, peers) == CONTENT[10 : 11 + COPY_LIMIT]


@WAYS
@pytest.mark.parametrize("size", [1000, COPY_LIMIT + 1])
def test_a_file_that_ends_too_early_is_an_error(
    peers: Peers, file: File, scratch: memoryview | None, size: int
) -> None:
    outbox = Outbox(peers.channel, scratch)
    outbox.put([FileRange(file, len(CONTENT) - 500, size, is_hot=True)], size)
    with pytest.raises(DiskError, match="ends before"):
        drain(outbox, peers)


def test_a_peer_that_is_gone_is_an_error(peers: Peers) -> None:
    outbox = Outbox(peers.channel, None)
    outbox.put_reply(b"x")
    peers.theirs.close()
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        outbox.send()
