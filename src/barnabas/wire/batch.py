"""Record batches, format v2: the 61-byte header, its checksum, and the fields a broker rewrites in place.

Layout (big-endian), with the positions the broker patches:

    0  base_offset i64     the leader assigns it
    8  batch_length i32    bytes after this field
    12 leader_epoch i32    the leader assigns it
    16 magic i8            2
    17 crc u32             CRC32C of everything from position 21 on
    21 attributes i16      bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
    23 last_offset_delta i32, 27 base_timestamp i64, 35 max_timestamp i64
    43 producer_id i64, 51 producer_epoch i16, 53 base_sequence i32, 57 record_count i32

Base offset and leader epoch lie before the checksummed part (KIP-98), so assigning them costs no second pass
over the data. Nothing here looks at records: see ``records`` for decoding and ``walk`` for validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, NamedTuple, TypeAlias

from barnabas.model.errors import ErrorCode
from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Codec

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Bytes of base offset and length, which batch_length does not count."""
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

MAX_SEQUENCE = 2**31 - 1

_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_OFFSET_LENGTH_EPOCH = Struct(">qii")
_PRODUCER = Struct(">qh")

_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43

_SMALLEST_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_SMALLEST_LEGACY_LENGTH = 14
"""What Kafka calls RECORD_OVERHEAD_V0: anything shorter has no magic byte to speak of."""

_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


class CorruptBatch(Exception):
    """The bytes are no batch: short, absurd length, checksum mismatch."""

    code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(Exception):
    """The batch is whole but says something no producer may say. ``index`` is the record, -1 for the header."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_RECORD

    def __init__(self, reason: str, index: int = -1) -> None:
        super().__init__(f"record {index}: {reason}" if index >= 0 else reason)
        self.reason = reason
        self.index = index


class UnsupportedMagic(Exception):
    code: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def __init__(self, magic: int) -> None:
        super().__init__(f"message format {magic} is not supported, only 2")
        self.magic = magic


class UnsupportedCodec(Exception):
    code: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def __init__(self, codec: int) -> None:
        super().__init__(f"unknown compression codec {codec}")
        self.codec = codec


class BatchHeader(NamedTuple):
    """The header as it stands on the wire, so that one unpack builds it."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Raises UnsupportedCodec for the numbers 5 to 7, which three bits can hold and nobody has defined."""
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise UnsupportedCodec(number)
        return _CODECS[number]

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Then base_timestamp is the horizon (KIP-534), not the first record's time."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """-1 where there is no sequence."""
        if self.base_sequence < 0:
            return -1
        return add_sequence(self.base_sequence, self.last_offset_delta)


def add_sequence(sequence: int, count: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0, as Kafka's DefaultRecordBatch.incrementSequence has it."""
    return (sequence + count) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``; the records after it need not be in the buffer.

    The checksum is not looked at. Raises CorruptBatch where there is no header or an impossible length, and
    UnsupportedMagic for the formats before v2, whose magic byte stands at the same place.
    """
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise _why_not_a_header(buffer, position)
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC or header.batch_length < _SMALLEST_LENGTH:
        raise _why_not_a_header(buffer, position)
    return header


def _why_not_a_header(buffer: Buffer, position: int) -> Exception:
    """A v0 or v1 message may be shorter than a v2 header, so the magic byte is asked before the size."""
    if position < 0 or len(buffer) - position <= _MAGIC_AT:
        return CorruptBatch(f"{max(len(buffer) - position, 0)} bytes are too few for a batch header")
    (length,) = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)
    if length < _SMALLEST_LEGACY_LENGTH:
        return CorruptBatch(f"batch length {length} is impossible")
    magic = buffer[position + _MAGIC_AT]
    if magic in (0, 1):
        return UnsupportedMagic(magic)
    if magic != MAGIC:
        return CorruptBatch(f"magic {magic} is unknown")
    return CorruptBatch(f"batch length {length} is impossible or the header is cut short")


def check_crc(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the ``size`` bytes of the batch at ``position`` have the checksum that its header says."""
    if size < HEADER_SIZE or position < 0 or len(buffer) - position < size:
        return False
    expected: int = _CRC.unpack_from(buffer, position + _CRC_AT)[0]
    return _checksum(buffer, position, size) == expected


def _checksum(buffer: Buffer, position: int, size: int) -> int:
    with memoryview(buffer) as view, view[position + _ATTRIBUTES_AT : position + size] as part:
        return int(crc32c(part))


def codec_number(batch: Buffer) -> int:
    """What the bytes, which nobody has checked yet, say of their compression; 0 where they are too few."""
    return batch[_ATTRIBUTES_AT + 1] & CODEC_MASK if len(batch) >= HEADER_SIZE else 0


def is_transactional(batch: Buffer) -> bool:
    """Whether the bytes, which nobody has checked yet, say that they are a batch of a transaction."""
    return len(batch) >= HEADER_SIZE and batch[_MAGIC_AT] == MAGIC and bool(batch[_ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def producer_of(batch: Buffer) -> tuple[int, int]:
    """(producer id, producer epoch) in the header, which must be complete."""
    return _PRODUCER.unpack_from(batch, _PRODUCER_AT)


def patch_offset_and_epoch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Both fields a leader assigns to a whole batch; the length between them is written back as it is."""
    _OFFSET_LENGTH_EPOCH.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch)


def restamp(
    buffer: bytearray | memoryview,
    position: int,
    *,
    attributes: int | None = None,
    max_timestamp: int | None = None,
) -> int:
    """Rewrite checksummed header fields in place and the checksum with them; returns the new checksum.

    For log append time pass ``attributes=header.attributes | LOG_APPEND_TIME`` and ``max_timestamp=now``: readers
    then take max_timestamp for every record, so the records stay untouched.
    """
    size = read_header(buffer, position).size
    if len(buffer) - position < size:
        raise CorruptBatch(f"batch of {size} bytes is cut short")
    if attributes is not None:
        _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, attributes)
    if max_timestamp is not None:
        _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    crc = _checksum(buffer, position, size)
    _CRC.pack_into(buffer, position + _CRC_AT, crc)
    return crc


def iterate(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches that lie wholly in ``buffer[start:end]``.

    A batch cut short by ``end`` ends the iteration silently: that is how a Fetch response and a file chunk end.
    """
    end = len(buffer) if end is None else min(end, len(buffer))
    while end - start >= HEADER_SIZE:
        header = read_header(buffer, start)
        if end - start < header.size:
            return
        yield start, header
        start += header.size


def check_header(header: BatchHeader) -> None:
    """What Kafka's LogValidator asks of the header of a batch that a client produces, whatever its codec.

    Raises InvalidRecord or UnsupportedCodec. The records themselves are ``walk``'s.
    """
    codec = header.codec
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset of a produced batch is {header.base_offset}, not 0")
    if header.record_count <= 0 or header.last_offset_delta < 0:
        raise InvalidRecord(f"{header.record_count} records up to offset delta {header.last_offset_delta}")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records up to offset delta {header.last_offset_delta}")
    if header.is_control:
        raise InvalidRecord("clients may not write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent sequence {header.base_sequence}")
    if codec is Codec.NONE and header.size - HEADER_SIZE < header.record_count * SMALLEST_RECORD:
        raise InvalidRecord(f"{header.record_count} records in {header.size} bytes")


SMALLEST_RECORD = 7
"""Bytes: length, attributes, timestamp delta, offset delta, key length, value length, header count."""


def encode_header(header: BatchHeader) -> bytes:
    """As given, checksum included: the caller has it computed or will ``restamp``."""
    return _HEADER.pack(*header)
