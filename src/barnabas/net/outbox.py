"""The queue of replies to the socket, in order: bytes, and file ranges, of which only small ones are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

from barnabas.model.ports import DiskError
from barnabas.net.channel import PlainChannel

COPY_LIMIT = 128 << 10
"""File ranges up to this are read and sent with their neighbours."""
PIECE_BYTES = 1 << 20
"""Larger ranges are sent by sendfile, or, where there is none, copied in pieces of this size."""
SENDFILE_CHUNK = 4 << 20
MAX_GATHERED = 64

IN_MEMORY = (bytes, bytearray, memoryview)


class Sent(Enum):
    ALL = auto()
    SOCKET_FULL = auto()
    NOT_CACHED = auto()
    """``first`` is a file range that has to come from the disk before it can be sent without waiting."""


class Outbox:
    __slots__ = ("_channel", "_chunks", "_scratch", "size")

    def __init__(self, channel: PlainChannel, scratch: memoryview | None) -> None:
        """File ranges go by sendfile; by way of ``scratch`` where one is given."""
        self._channel = channel
        self._scratch = scratch
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
                self._took(self._channel.send(chunks[0]))
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
        channel = self._channel
        self._took(channel.send_gathered(gathered) if len(gathered) > 1 else channel.send(gathered[0]))

    def _send_range(self, chunk: Any) -> bool:
        """Sends from a file range, or reads it to be sent with its neighbours; False where it is not in memory."""
        if chunk.size <= COPY_LIMIT:
            data = _read_small(chunk)
            if data is None:
                return False
            self._chunks[0] = data
        elif self._scratch is not None:
            piece = _read_piece(chunk, self._scratch[: chunk.size])
            if piece is None:
                return False
            sent = self._channel.send(piece)
            self._took_range(chunk, sent)
            if sent < len(piece):
                raise BlockingIOError  # or the rest would be read for nothing
        elif chunk.is_hot or chunk.file.is_cached(chunk.size, chunk.position):
            sent = self._channel.send_file(chunk.file, chunk.position, min(chunk.size, SENDFILE_CHUNK))
            self._took_range(chunk, sent)
        else:
            return False
        return True

    def _took_range(self, chunk: Any, count: int) -> None:
        if count == 0:
            raise _too_short(chunk)
        chunk.position += count
        chunk.size -= count
        self.size -= count
        if chunk.size == 0:
            self._chunks.popleft()


def _read_small(chunk: Any) -> Any:
    """The bytes of a file range; None where they must come from the disk first."""
    if chunk.is_hot:
        data = chunk.read()
    else:
        data = bytearray(chunk.size)
        if chunk.file.read_cached_into(data, chunk.position) != chunk.size:
            return None
    if len(data) < chunk.size:
        raise _too_short(chunk)
    return data


def _read_piece(chunk: Any, piece: memoryview) -> memoryview | bytes | None:
    """The beginning of a file range; None where it must come from the disk first."""
    count = chunk.file.read_cached_into(piece, chunk.position)
    if count is not None:
        return piece[:count]
    return chunk.file.read(len(piece), chunk.position) if chunk.is_hot else None  # read, and gone again: now or never


def _too_short(chunk: Any) -> DiskError:
    """The frame that it is part of has been promised at its full length: nothing can follow it."""
    return DiskError("read", chunk.file.path, f"ends before {chunk.position + chunk.size}")
