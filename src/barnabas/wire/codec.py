"""Messages to bytes and back, by functions that are compiled on the first use of a class and version.

A field that a version does not have is not written, whatever its value: callers fill in what they know and
the version decides. Bytes after a message are the caller's to judge; ``decode`` says where it ended.
"""

from collections.abc import Iterable
from typing import TypeVar

from barnabas.wire.decoders import Reader, compile_reader
from barnabas.wire.encoders import Writer, compile_writer
from barnabas.wire.schema import Buffer, Chunk, DecodeError, EncodeError, Message, versions_of

__all__ = [
    "Buffer",
    "Chunk",
    "DecodeError",
    "EncodeError",
    "decode",
    "encode",
    "encode_bytes",
    "reader",
    "size",
    "writer",
]

M = TypeVar("M", bound=Message)

_readers: dict[tuple[type[Message], int], Reader] = {}
_writers: dict[tuple[type[Message], int], Writer] = {}


def reader(cls: type[Message], version: int) -> Reader:
    """The function (buffer, start, end) -> (message, where it ended)."""
    found = _readers.get((cls, version))
    if found is None:
        if version not in versions_of(cls):
            raise DecodeError(f"{cls.__name__} has no version {version}")
        found = _readers[cls, version] = compile_reader(cls, version)
    return found


def writer(cls: type[Message], version: int) -> Writer:
    """The function message -> chunks."""
    found = _writers.get((cls, version))
    if found is None:
        if version not in versions_of(cls):
            raise EncodeError(f"{cls.__name__} has no version {version}")
        found = _writers[cls, version] = compile_writer(cls, version)
    return found


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0, end: int | None = None) -> tuple[M, int]:
    """A message and the offset after it. Raises DecodeError and nothing else.

    ``records`` fields are views into the buffer.
    """
    return reader(cls, version)(buffer, offset, len(buffer) if end is None else end)


def encode(message: Message, version: int) -> list[Chunk]:
    """The message as chunks to be sent one after the other. Raises EncodeError and nothing else.

    Records above a few kilobytes and records sources are chunks of their own, not copies.
    """
    return writer(type(message), version)(message)


def encode_bytes(message: Message, version: int) -> bytes:
    """The message as one piece; its records must be in memory."""
    chunks = encode(message, version)
    try:
        return b"".join(chunks)  # type: ignore[arg-type]
    except TypeError as error:
        raise EncodeError(f"{type(message).__name__}: {error}") from error


def size(chunks: Iterable[Chunk]) -> int:
    """How many bytes the chunks are on the wire."""
    total = 0
    for chunk in chunks:
        total += len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size
    return total
