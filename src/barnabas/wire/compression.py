"""The five codecs of record batches, compressing as Kafka's clients do and decompressing under a hard bound.

The caller limits the size of decompressed data: a few KB of any codec can expand to gigabytes. Output is produced in
small steps, so that a decompression bomb costs at most the limit plus one step.
The libraries are imported on the first use of their codec: a broker that only passes batches on needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import ClassVar

from barnabas.model.errors import ErrorCode

STEP_BYTES = 256 * 1024
"""Output asked of a streaming decompressor at a time."""

MAX_FRAMES = 64
"""Concatenated gzip members or zstd frames in one batch. Producers write one; each empty one costs time and yields
nothing, so the bound on output does not bound them."""

MAX_ZSTD_WINDOW_BYTES = 1 << 27
"""What zstd's highest levels use, and its own default limit. The window is reserved, but only touched as output is."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_BLOCK_BYTES = 32 * 1024
"""snappy-java's default block, hence Kafka's."""
_XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_LENGTH = Struct(">i")

_ZSTD_BLOCK_MAX_BYTES = 128 * 1024
_ZSTD_RAW, _ZSTD_RUN = 0, 1


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(Exception):
    """The data is not what its codec writes. Not retriable: the checksum held, so sending it again changes nothing."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_RECORD


class BombError(DecompressionError):
    """The data decompresses to more than the bound."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"decompresses to more than {max_bytes} bytes")
        self.max_bytes = max_bytes


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """``level`` means what the codec's own library means by it; None is its default. Snappy has none."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: bytes | bytearray | memoryview, max_bytes: int) -> bytes:
    """Raises BombError above ``max_bytes`` of output, DecompressionError for data that is broken or cut short."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise BombError(max_bytes)
        return bytes(data)
    return _join(_DECOMPRESSORS[codec](memoryview(data), max_bytes), max_bytes)


def _join(pieces: Iterator[bytes], max_bytes: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > max_bytes:
            raise BombError(max_bytes)
        parts.append(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_gzip(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    import zlib  # noqa: PLC0415 - imported on first use, see the module's text

    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: memoryview, _max_bytes: int) -> Iterator[bytes]:
    import zlib  # noqa: PLC0415

    rest: bytes | memoryview = data
    for _ in range(MAX_FRAMES):
        member = zlib.decompressobj(31)
        try:
            while not member.eof:
                piece = member.decompress(rest, STEP_BYTES)
                rest = member.unconsumed_tail
                if not piece and not rest and not member.eof:
                    raise DecompressionError("gzip data is cut short")
                yield piece
        except zlib.error as error:
            raise DecompressionError(f"gzip: {error}") from None
        rest = member.unused_data
        if not rest:
            return
    raise DecompressionError(f"more than {MAX_FRAMES} gzip members")


def _compress_snappy(data: bytes | bytearray | memoryview, _level: int | None) -> bytes:
    import cramjam  # noqa: PLC0415

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + XERIAL_BLOCK_BYTES])))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> Iterator[bytes]:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        # librdkafka and older clients may send one bare snappy block.
        yield _snappy_block(data, max_bytes)
        return
    position, left = 0, max_bytes
    while position < len(data):
        # snappy-java's streams may be concatenated, each with its header; a block cannot be that long.
        if bytes(data[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(data):
                raise DecompressionError("snappy header is cut short")
            continue
        if len(data) - position < 4:
            raise DecompressionError("snappy frame is cut short")
        (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        position += 4
        if length <= 0 or length > len(data) - position:
            raise DecompressionError(f"snappy block of {length} bytes does not fit")
        try:
            piece = _snappy_block(data[position : position + length], left)
        except BombError:
            raise BombError(max_bytes) from None
        yield piece
        left -= len(piece)
        position += length


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    """The size stands in front and is what the library would allocate, so it is asked before the library is."""
    import cramjam  # noqa: PLC0415

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DecompressionError("snappy block has no size")
    if size > max_bytes:
        raise BombError(max_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(bytes(block)))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from None


def _compress_lz4(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    """Independent blocks of 64 KB without content size: Kafka's reader refuses linked blocks."""
    import lz4.frame  # noqa: PLC0415

    return bytes(
        lz4.frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )


def _decompress_lz4(data: memoryview, _max_bytes: int) -> Iterator[bytes]:
    import lz4.frame  # noqa: PLC0415

    frame = lz4.frame.LZ4FrameDecompressor()
    rest = bytes(data)
    try:
        while not frame.eof:
            piece = frame.decompress(rest, max_length=STEP_BYTES)
            rest = b""
            if not piece and not frame.eof:
                raise DecompressionError("lz4 frame is cut short")
            yield piece
    except RuntimeError as error:
        raise DecompressionError(f"lz4: {error}") from None
    if frame.unused_data:
        raise DecompressionError("data after the lz4 frame")


def _compress_zstd(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    import zstandard  # noqa: PLC0415

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _decompress_zstd(data: memoryview, _max_bytes: int) -> Iterator[bytes]:
    """Fed a few blocks at a time, since a block never yields more than 128 KB.

    The library's own readers do not do: one call ignores the bound, and its stream reader takes a frame that is cut
    short for a frame that ends.
    """
    import zstandard  # noqa: PLC0415

    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    position = 0
    for _ in range(MAX_FRAMES):
        frame = decompressor.decompressobj()
        try:
            for end in _zstd_steps(data, position):
                yield frame.decompress(data[position:end])
                position = end
        except zstandard.ZstdError as error:
            raise DecompressionError(f"zstd: {error}") from None
        if not frame.eof:
            raise DecompressionError("zstd frame is cut short")
        if position == len(data):
            return
    raise DecompressionError(f"more than {MAX_FRAMES} zstd frames")


def _zstd_steps(data: memoryview, position: int) -> Iterator[int]:
    """Where to cut the frame at ``position``: after every few blocks, and at its end (RFC 8878, section 3.1.1)."""
    import zstandard  # noqa: PLC0415

    has_checksum = zstandard.get_frame_parameters(data[position : position + 32]).has_checksum
    position += zstandard.frame_header_size(data[position : position + 32])
    most = 0
    while len(data) - position >= 3:
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last, kind, size = word & 1, word >> 1 & 3, word >> 3
        position += 3 + (1 if kind == _ZSTD_RUN else size)
        if position > len(data):
            break
        if is_last:
            yield min(position + 4 * has_checksum, len(data))
            return
        most += size if kind in (_ZSTD_RAW, _ZSTD_RUN) else _ZSTD_BLOCK_MAX_BYTES
        if most >= STEP_BYTES:
            yield position
            most = 0
    raise DecompressionError("zstd frame is cut short")


_COMPRESSORS: dict[Codec, Callable[[bytes | bytearray | memoryview, int | None], bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: dict[Codec, Callable[[memoryview, int], Iterator[bytes]]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
