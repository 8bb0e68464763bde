"""Replies on their way to the socket, in order: bytes, and file ranges, which are only read where they are small."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

from barnabas.model.ports import DiskError

COPY_LIMIT = 128 << 10
"""File ranges up to this are read and sent with their neighbours; above, sendfile is cheaper."""
PIECE_BYTES = 256 << 10
"""Where there is no sendfile, larger ranges are read and sent in pieces: a peer that never reads holds one at most."""
SENDFILE_CHUNK = 4 << 20
MAX_GATHERED = 64

IN_MEMORY = (bytes, bytearray, memoryview)


class Sent(Enum):
    ALL = auto()
    SOCKET_FULL = auto()
    NOT_CACHED = auto()
    """``first`` is a file range that has to come from the disk before it can be sent without waiting."""


class Outbox:
    __slots__ = ("_chunks", "_fd", "_sendfile", "size")

    def __init__(self, fd: int, *, sendfile: bool) -> None:
        self._fd = fd
        self._sendfile = sendfile
        self._chunks: deque[Any] = deque()
        self.size = 0
        """Bytes that are not sent yet. File ranges count by their size."""

    @property
    def first(self) -> Any:
        return self._chunks[0]

    def put(self, chunks: Iterable[Any], size: int) -> None:
        self._chunks.extend(chunks)
        self.size += size

    def put_reply(self, reply: bytes) -> None:
        self._chunks.append(reply)
        self.size += len(reply)

    def clear(self) -> None:
        self._chunks.clear()
        self.size = 0

    def send(self) -> Sent:
        """As much as the socket takes. Raises OSError if the peer is gone, DiskError if a range cannot be read."""
        chunks = self._chunks
        try:
            if len(chunks) == 1 and isinstance(chunks[0], bytes):  # nearly every reply is one small piece, and fits
                self._took(os.write(self._fd, chunks[0]))
            while chunks:
                if isinstance(chunks[0], IN_MEMORY):
                    self._send_gathered()
                elif not self._send_range(chunks[0]):
                    return Sent.NOT_CACHED
        except (BlockingIOError, InterruptedError):
            return Sent.SOCKET_FULL
        return Sent.ALL

    def _took(self, count: int) -> None:
        """The socket has taken so many bytes of the chunks in memory at the front."""
        chunks = self._chunks
        self.size -= count
        while chunks and count >= len(chunks[0]):
            count -= len(chunks.popleft())
        if count:
            chunks[0] = memoryview(chunks[0])[count:]

    def _send_gathered(self) -> None:
        """Everything up to the next large file range in one call; small ranges are read into it."""
        chunks = self._chunks
        gathered: list[Any] = []
        for position in range(min(len(chunks), MAX_GATHERED)):
            chunk = chunks[position]
            if not isinstance(chunk, IN_MEMORY):
                if chunk.size > COPY_LIMIT or (chunk := _read_small(chunk)) is None:
                    break
                chunks[position] = chunk
            gathered.append(chunk)
        self._took(os.writev(self._fd, gathered) if len(gathered) > 1 else os.write(self._fd, gathered[0]))

    def _send_range(self, chunk: Any) -> bool:
        """Sends from a file range, or reads it to be sent with its neighbours; False where it is not in memory."""
        if chunk.size <= COPY_LIMIT:
            data = _read_small(chunk)
            if data is None:
                return False
            self._chunks[0] = data
        elif chunk.is_hot or chunk.file.is_cached(chunk.size, chunk.position):
            self._send_file(chunk)
        else:
            return False
        return True

    def _send_file(self, chunk: Any) -> None:
        if self._sendfile:
            try:
                sent = os.sendfile(self._fd, chunk.file.fileno(), chunk.position, min(chunk.size, SENDFILE_CHUNK))
            finally:
                chunk.file.release_fileno()
        else:
            sent = os.write(self._fd, chunk.file.read(min(chunk.size, PIECE_BYTES), chunk.position))
        if sent == 0:
            raise _too_short(chunk)
        chunk.position += sent
        chunk.size -= sent
        self.size -= sent
        if chunk.size == 0:
            self._chunks.popleft()


def _read_small(chunk: Any) -> Any:
    """The bytes of a file range; None where they must come from the disk first."""
    data = chunk.read() if chunk.is_hot else chunk.file.read_cached(chunk.size, chunk.position)
    if data is not None and len(data) < chunk.size:
        raise _too_short(chunk)
    return data


def _too_short(chunk: Any) -> DiskError:
    """The frame that it is part of has been promised at its full length: nothing can follow it."""
    return DiskError("read", chunk.file.path, f"ends before {chunk.position + chunk.size}")
