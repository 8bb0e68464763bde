"""Records inside a batch: decoding, encoding, and the control records of transactions and of the raft log.

A record is: length varint, attributes i8, timestamp delta varlong, offset delta varint, key and value (varint length,
-1 for null), header count varint, then headers of a key and a nullable value. All varints are zigzag.
The broker's hot path uses none of this; replays, the cleaner, tools and the clients do.
Decoding trusts the checksum to have been looked at (``batch.check_crc``), but nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple, TypeAlias

from barnabas.wire import batch as batches
from barnabas.wire.batch import BatchHeader, Buffer, CorruptBatch, InvalidRecord
from barnabas.wire.compression import Codec, compress, decompress

Header: TypeAlias = tuple[str, bytes | None]

MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
"""The default bound on what one batch may decompress to; as large as the largest request."""


class Record(NamedTuple):
    """In ``encode_batch`` an offset of -1 means "the one after the record before"."""

    offset: int = -1
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


def decode_batch(buffer: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of the batch at ``position``.

    Raises CorruptBatch, UnsupportedMagic, UnsupportedCodec, DecompressionError (BombError above ``max_bytes``) or
    InvalidRecord. Offsets need not be dense: a compacted batch has gaps.
    """
    header = batches.read_header(buffer, position)
    return decode_payload(header, payload(buffer, position, header, max_bytes=max_bytes))


def payload(buffer: Buffer, position: int, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The records' bytes, decompressed."""
    if len(buffer) - position < header.size:
        raise CorruptBatch(f"batch of {header.size} bytes is cut short")
    with memoryview(buffer) as view, view[position + batches.HEADER_SIZE : position + header.size] as part:
        return decompress(header.codec, part, max_bytes)


def decode_payload(header: BatchHeader, data: bytes) -> list[Record]:
    """``data`` is what ``payload`` returned for the batch of ``header``."""
    return list(iterate_payload(header, data))


def iterate_payload(header: BatchHeader, data: bytes) -> Iterator[Record]:
    """As ``decode_payload``, one record at a time: millions of them fit into a batch of a few kilobytes."""
    count = header.record_count
    if count < 0 or count * batches.SMALLEST_RECORD > len(data):
        raise InvalidRecord(f"{count} records in {len(data)} bytes")
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for index in range(count):
        try:
            record, position = _read_record(data, position, header.base_offset, header.base_timestamp, fixed_timestamp)
        except (IndexError, ValueError) as reason:
            raise InvalidRecord(str(reason), index) from None
        yield record
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes after the last record")


def _read_record(
    data: bytes, position: int, base_offset: int, base_timestamp: int, fixed_timestamp: int | None
) -> tuple[Record, int]:
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise ValueError(f"length {length} does not fit")
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    header_count, position = read_varint(data, position)
    headers: tuple[Header, ...] = ()
    if header_count:
        headers, position = _read_headers(data, position, end, header_count)
    if position != end:
        raise ValueError("length does not match the fields")
    timestamp = wrapped(base_timestamp + timestamp_delta) if fixed_timestamp is None else fixed_timestamp
    return Record(base_offset + offset_delta, timestamp, key, value, headers), position


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if count < 0 or count > end - position:
        raise ValueError(f"{count} headers do not fit")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if key is None:
            raise ValueError("header without a key")
        # Nobody checks that keys are UTF-8; what is not must survive a rewrite by the cleaner.
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise ValueError(f"field of {length} bytes does not fit")
    return data[position : position + length], position + length


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and where it ends. IndexError where the data ends first."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    number = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), position
    raise ValueError("varint is too long")


def wrapped(number: int) -> int:
    """As a signed number of 64 bits. Timestamps further apart than that are so written, and so read, by Kafka."""
    return number if -(1 << 63) <= number < 1 << 63 else (number + (1 << 63)) % (1 << 64) - (1 << 63)


def append_varint(out: bytearray, number: int) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


class BatchBuilder:
    """Collects records until ``build``; ``size`` tells what the batch takes before compression.

    The base timestamp is the first record's, as Kafka's builder has it, unless a delete horizon takes its place.
    """

    __slots__ = ("_base_timestamp", "_body", "_last_delta", "_max_timestamp", "base_offset", "count")

    def __init__(self, *, base_offset: int = 0, base_timestamp: int | None = None) -> None:
        self.base_offset = base_offset
        self.count = 0
        self._base_timestamp = base_timestamp
        self._max_timestamp = -1
        self._last_delta = -1
        self._body = bytearray()

    @property
    def size(self) -> int:
        return batches.HEADER_SIZE + len(self._body)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self._last_delta + 1

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] = (),
        offset: int = -1,
    ) -> int:
        """Returns the record's offset: the one given, else the next."""
        delta = self._last_delta + 1 if offset < 0 else offset - self.base_offset
        if delta <= self._last_delta:
            raise ValueError(f"offset {offset} is not above {self.next_offset - 1}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        record = encode_record(wrapped(timestamp - self._base_timestamp), delta, key, value, tuple(headers))
        append_varint(self._body, len(record))
        self._body += record
        self._last_delta = delta
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self.count += 1
        return self.base_offset + delta

    def build(
        self,
        *,
        leader_epoch: int = -1,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        attributes: int = 0,
        log_append_time: int | None = None,
        last_offset: int | None = None,
    ) -> bytes:
        """``attributes`` are the flags beside the codec; ``last_offset`` outlives records that the cleaner took."""
        body = compress(codec, self._body, level)
        if log_append_time is not None:
            attributes |= batches.LOG_APPEND_TIME
        header = BatchHeader(
            base_offset=self.base_offset,
            batch_length=batches.HEADER_SIZE - batches.LOG_OVERHEAD + len(body),
            leader_epoch=leader_epoch,
            magic=batches.MAGIC,
            crc=0,
            attributes=attributes | codec,
            last_offset_delta=self._last_delta if last_offset is None else last_offset - self.base_offset,
            base_timestamp=-1 if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=self._max_timestamp if log_append_time is None else log_append_time,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.count,
        )
        whole = bytearray(batches.encode_header(header))
        whole += body
        batches.restamp(whole, 0)
        return bytes(whole)


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> bytearray:
    """A record but for its length."""
    record = bytearray(1)
    append_varint(record, timestamp_delta)
    append_varint(record, offset_delta)
    _append_bytes(record, key)
    _append_bytes(record, value)
    append_varint(record, len(headers))
    for name, content in headers:
        _append_bytes(record, name.encode("utf-8", "surrogateescape"))
        _append_bytes(record, content)
    return record


def _append_bytes(out: bytearray, field: bytes | None) -> None:
    append_varint(out, -1 if field is None else len(field))
    out += field or b""


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """A whole batch with its checksum. ``delete_horizon`` and ``last_offset`` are for the cleaner, see BatchBuilder."""
    builder = BatchBuilder(base_offset=base_offset, base_timestamp=delete_horizon)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers, record.offset)
    attributes = (
        (batches.TRANSACTIONAL if transactional else 0)
        | (batches.CONTROL if control else 0)
        | (batches.DELETE_HORIZON if delete_horizon is not None else 0)
    )
    return builder.build(
        leader_epoch=leader_epoch,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=attributes,
        log_append_time=log_append_time,
        last_offset=last_offset,
    )


class ControlType(IntEnum):
    """Types of control records (KIP-98 for transactions, KIP-595, KIP-630 and KIP-853 for the raft log)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CONTROL_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")


def control_key(control_type: ControlType) -> bytes:
    return _CONTROL_KEY.pack(0, control_type)


def encode_control(
    control_type: ControlType,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytes:
    """A control batch of one record. For the raft log's types ``value`` is their message, version included."""
    key = control_key(control_type)
    return encode_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )


def encode_end_marker(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch that ends a transaction in a partition."""
    return encode_control(
        ControlType.COMMIT if commit else ControlType.ABORT,
        _END_MARKER.pack(0, coordinator_epoch),
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )


def read_control_type(record: Record) -> ControlType | None:
    """None for a type that this build does not know: it is skipped and kept."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise InvalidRecord("control record without a type")
    version, number = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecord(f"control record of version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def read_coordinator_epoch(record: Record) -> int:
    """Of an end-transaction marker."""
    try:
        _version, coordinator_epoch = _END_MARKER.unpack_from(record.value or b"")
    except error as reason:
        raise InvalidRecord(f"end marker: {reason}") from None
    return int(coordinator_epoch)
