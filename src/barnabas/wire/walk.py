"""Walks over record batches that must be fast: every record of a batch, every batch of a segment.

Each walk exists twice: in ``_walk.c`` and here in Python. The native one serves wherever the extension was built;
``use(native=False)`` forces the other, and NATIVE tells which is in force. Tests hold the two equal, reason for reason.

- ``inspect`` tells in one look whether a produced batch is as nearly all are, and what an append needs to know of it.
- ``check_records`` and ``check_payload`` ask of a produced batch what Kafka's LogValidator asks of its records.
- ``index_scan`` is recovery: it goes over a segment chunk by chunk and hands back only what the caller must act on.

A walk stops at the first thing wrong. Record walks raise InvalidRecord with the record's index; a scan returns the
position of the first byte that is not part of a whole, valid batch, and why.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from barnabas.wire.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Buffer, CorruptBatch, InvalidRecord, read_header
from barnabas.wire.checksum import crc32c

_native: ModuleType | None
try:
    import barnabas.wire._walk as _native  # type: ignore[no-redef]
except ImportError:
    _native = None

NATIVE_AVAILABLE = _native is not None
NATIVE = False
"""Whether the native walks are in force; set by ``use``."""


class Reason(IntEnum):
    """Why a walk over records stopped. The numbers are shared with ``_walk.c``."""

    WHOLE = 0
    VARINT = 1
    LENGTH = 2
    FIELDS = 3
    OFFSET = 4
    KEY = 5
    VALUE = 6
    HEADER_COUNT = 7
    HEADER = 8
    TIMESTAMP = 9
    TRAILING = 10


REASONS = {
    Reason.VARINT: "a varint is cut short or too long",
    Reason.LENGTH: "its length does not fit the batch",
    Reason.FIELDS: "its length does not match its fields",
    Reason.OFFSET: "its offset delta is not its place in the batch",
    Reason.KEY: "its key's length does not fit",
    Reason.VALUE: "its value's length does not fit",
    Reason.HEADER_COUNT: "its number of headers does not fit",
    Reason.HEADER: "a header's key or value does not fit, or the key is null",
    Reason.TIMESTAMP: "its timestamp overflows",
    Reason.TRAILING: "bytes follow the last record",
}


class Stop(IntEnum):
    """Why a scan over batches stopped. The numbers are shared with ``_walk.c``."""

    END = 0
    """Every byte belongs to a whole batch."""
    PARTIAL = 1
    """The rest is the beginning of a batch: read on, or, at the end of the file, cut it off."""
    LENGTH = 2
    MAGIC = 3
    HEADER = 4
    """A negative base offset, offset delta or record count, or offsets beyond 63 bits."""
    CRC = 5
    OFFSET = 6
    """The offsets go back, or above max_offset."""


class RecordsSummary(NamedTuple):
    max_timestamp: int
    """-1 where no record has one, as in Kafka."""
    offset_of_max_timestamp: int
    """The offset delta of the first record with max_timestamp; -1 where there is none."""
    min_timestamp: int
    """Records without a timestamp (-1) aside; -1 where there is none."""
    has_null_key: bool
    """Compacted topics refuse such batches."""


class ScannedBatch(NamedTuple):
    """The fields of a BatchFields tuple by name: ``ScannedBatch._make(fields)``."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    attributes: int


BatchFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]
"""ScannedBatch as a plain tuple, since a million of them are made in a recovery."""


class ScanState(NamedTuple):
    """What ``index_scan`` carries from one chunk of a segment to the next."""

    next_offset: int
    """The lowest base offset the next batch may have: at first, the segment's."""
    bytes_since_entry: int = 0
    max_timestamp: int = -1
    offset_of_max_timestamp: int = -1
    """The last offset of the batch that has it, which is what the time index holds."""
    leader_epoch: int = -1
    """The latest epoch known, at first from the epoch cache."""


class IndexScan(NamedTuple):
    state: ScanState
    stop: int
    """Position in the buffer after the last whole, valid batch."""
    reason: Stop
    needed_bytes: int
    """For PARTIAL, how long the batch at ``stop`` claims to be (61 while not even its header is there), else 0."""
    entries: array[int]
    """Flat quadruples: last offset of the batch, its file position, max timestamp so far, offset of that timestamp.
    The first two are the offset index's entry. The last two are the time index's, if the timestamp is above that of
    the time index's last entry."""
    epochs: array[int]
    """Flat pairs: a leader epoch above all before, the base offset where it begins."""
    producers: list[BatchFields]
    """The batches that change producer state: those with a producer id, and control batches. Position is the file's."""


Inspected: TypeAlias = tuple[tuple[Any, ...], int, int, bool]
"""The header's fields, and of the records the largest and smallest timestamp and whether a key is null."""

_Walk: TypeAlias = Callable[[Buffer, int, int, int, int], tuple[int, int, int, int, int, bool]]


def check_records(buffer: Buffer, position: int, size: int, header: BatchHeader | None = None) -> RecordsSummary:
    """Walk the records of the uncompressed batch of ``size`` bytes at ``position``.

    Pass ``header`` if it has been read. The checksum is the caller's (``batch.check_crc``). Attributes of a record
    may hold anything, as in Kafka. Raises CorruptBatch where the batch is not whole, InvalidRecord for the rest.
    """
    header = header or read_header(buffer, position)
    if header.is_compressed:
        raise ValueError("the batch is compressed: decompress it and call check_payload")
    if header.size != size or len(buffer) - position < size:
        raise CorruptBatch(f"batch claims {header.size} bytes of {size}")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records up to offset delta {header.last_offset_delta}")
    return _summary(buffer, position + HEADER_SIZE, position + size, header.record_count, header.base_timestamp)


def check_payload(payload: Buffer, record_count: int, base_timestamp: int) -> RecordsSummary:
    """The same walk over the records' bytes alone: what a compressed batch decompresses to (``records.payload``)."""
    return _summary(payload, 0, len(payload), record_count, base_timestamp)


def _summary(buffer: Buffer, start: int, end: int, record_count: int, base_timestamp: int) -> RecordsSummary:
    reason, index, *found = _walk(buffer, start, end, record_count, base_timestamp)
    if reason:
        raise InvalidRecord(REASONS[Reason(reason)], index)
    return RecordsSummary._make(found)


def index_scan(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    state: ScanState,
    file_position: int = 0,
    index_interval_bytes: int = 4096,
    max_offset: int = 2**63 - 2,
    check_crc: bool = True,
) -> IndexScan:
    """Recover one chunk of a segment: ``file_position`` is where ``buffer[position]`` stands in the file.

    Index entries follow Kafka's LogSegment: one is due at a batch when more than ``index_interval_bytes`` went by
    since the last. ``max_offset`` is the last offset that the segment may hold (its base offset + 2^31 - 1).
    After PARTIAL call again with the bytes from ``stop`` on and more behind them, ``file_position`` moved likewise
    and the returned state.
    """
    end = len(buffer) if end is None else end
    found = _index_scan(buffer, position, end, check_crc, file_position, index_interval_bytes, max_offset, *state)
    stop, reason, needed_bytes, *carried, entries, epochs, producers = found
    return IndexScan(
        ScanState._make(carried), stop, Stop(reason), needed_bytes, array("q", entries), array("q", epochs), producers
    )


# The same in Python. These return what the native functions return, so that all above is shared.


class BadRecord(Exception):
    """Ends a walk over records."""

    def __init__(self, reason: Reason, index: int = -1) -> None:
        super().__init__(reason, index)
        self.reason = reason
        self.index = index


class RawRecord(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def read_records(
    data: bytes, count: int, base_timestamp: int | None, *, last_delta: int | None = None
) -> Iterator[RawRecord]:
    """The records of a payload. Raises BadRecord.

    Offset deltas are the places in the batch, or, where there is a ``last_delta``, ascend up to it. Timestamps that
    overflow are refused unless ``base_timestamp`` is None.
    """
    at, previous, index = 0, -1, -1
    try:
        for index in range(count):
            length, at = _varint(data, at, len(data))
            if length < 0 or length > len(data) - at:
                raise BadRecord(Reason.LENGTH)
            deltas = range(index, index + 1) if last_delta is None else range(previous + 1, last_delta + 1)
            record = _read_record(data, at, at + length, deltas)
            if base_timestamp is not None and not -(2**63) <= base_timestamp + record.timestamp_delta < 2**63:
                raise BadRecord(Reason.TIMESTAMP)
            previous, at = record.offset_delta, at + length
            yield record
    except BadRecord as bad:
        raise BadRecord(bad.reason, index) from None
    if at != len(data):
        raise BadRecord(Reason.TRAILING, count)


def _read_record(data: bytes, at: int, end: int, deltas: range) -> RawRecord:
    if at >= end:
        raise BadRecord(Reason.FIELDS)
    timestamp_delta, at = _varint(data, at + 1, end, 64)
    offset_delta, at = _varint(data, at, end)
    if offset_delta not in deltas:
        raise BadRecord(Reason.OFFSET)
    key, at = _field(data, at, end, Reason.KEY)
    value, at = _field(data, at, end, Reason.VALUE)
    count, at = _varint(data, at, end)
    if count < 0 or count > end - at:
        raise BadRecord(Reason.HEADER_COUNT)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, at = _field(data, at, end, Reason.HEADER)
        if name is None:
            raise BadRecord(Reason.HEADER)
        content, at = _field(data, at, end, Reason.HEADER)
        headers.append((name, content))
    if at != end:
        raise BadRecord(Reason.FIELDS)
    return RawRecord(timestamp_delta, offset_delta, key, value, headers)


def _field(data: bytes, at: int, end: int, bad: Reason) -> tuple[bytes | None, int]:
    length, at = _varint(data, at, end)
    if length < -1 or length > end - at:
        raise BadRecord(bad)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _varint(data: bytes, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    number = shift = 0
    while at < end and shift < bits:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> bits:
                break
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise BadRecord(Reason.VARINT)


def _walk_python(
    buffer: Buffer, start: int, end: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, int, bool]:
    _check_range(buffer, start, end)
    max_timestamp = offset_of_max = min_timestamp = -1
    has_null_key = False
    reason, index = Reason.WHOLE, count
    try:
        for record in read_records(bytes(memoryview(buffer)[start:end]), count, base_timestamp):
            has_null_key |= record.key is None
            timestamp = base_timestamp + record.timestamp_delta
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max = timestamp, record.offset_delta
            if timestamp != -1 and (min_timestamp == -1 or timestamp < min_timestamp):
                min_timestamp = timestamp
    except BadRecord as bad:
        reason, index = bad.reason, bad.index
    return reason, index, max_timestamp, offset_of_max, min_timestamp, has_null_key


def _inspect_python(_batch: memoryview) -> Inspected | None:
    """Python has no quicker way than the closer look that follows."""
    return None


_HEADER = Struct(">qiibIhiqqqhii")
_SMALLEST_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_ATTRIBUTES_AT = 21
_CONTROL = 0x20


def read_batch(view: memoryview, at: int, end: int, check_crc: bool) -> tuple[BatchFields | None, int, Stop]:
    """The batch at ``at`` and its size; or none, the size it claims, and why not."""
    if at == end:
        return None, 0, Stop.END
    if end - at < HEADER_SIZE:
        return None, HEADER_SIZE, Stop.PARTIAL
    base, length, leader_epoch, magic, crc, attributes, delta, _, max_timestamp, producer_id, *rest = (
        _HEADER.unpack_from(view, at)
    )
    if length < _SMALLEST_LENGTH:
        return None, 0, Stop.LENGTH
    if magic != 2:
        return None, 0, Stop.MAGIC
    size = length + LOG_OVERHEAD
    if end - at < size:
        return None, size, Stop.PARTIAL
    if check_crc and crc32c(view[at + _ATTRIBUTES_AT : at + size]) != crc:
        return None, 0, Stop.CRC
    producer_epoch, base_sequence, count = rest
    if base < 0 or delta < 0 or count < 0 or base + delta >= 2**63:
        return None, 0, Stop.HEADER
    last = base + delta
    return (
        (at, base, last, max_timestamp, leader_epoch, producer_id, producer_epoch, base_sequence, count, attributes),
        size,
        Stop.END,
    )


def _index_scan_python(
    buffer: Buffer,
    start: int,
    end: int,
    check_crc: bool,
    file_position: int,
    interval_bytes: int,
    max_offset: int,
    next_offset: int,
    bytes_since_entry: int,
    max_timestamp: int,
    offset_of_max: int,
    leader_epoch: int,
) -> tuple[Any, ...]:
    _check_range(buffer, start, end)
    if not (0 <= file_position < 2**62 and 0 <= bytes_since_entry < 2**62):
        raise ValueError("position out of range")
    entries, epochs = array("q"), array("q")
    producers: list[BatchFields] = []
    at, max_offset = start, min(max_offset, 2**63 - 2)
    with memoryview(buffer) as view:
        while True:
            batch, size, reason = read_batch(view, at, end, check_crc)
            if batch is None:
                break
            _, base, last, timestamp, epoch, producer_id, _, _, _, attributes = batch
            if base < next_offset or last > max_offset:
                size, reason = 0, Stop.OFFSET
                break
            position = file_position + at - start
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max = timestamp, last
            if bytes_since_entry > interval_bytes:
                entries.extend((last, position, max_timestamp, offset_of_max))
                bytes_since_entry = 0
            if epoch > leader_epoch:
                leader_epoch = epoch
                epochs.extend((epoch, base))
            if producer_id >= 0 or attributes & _CONTROL:
                producers.append((position, *batch[1:]))
            bytes_since_entry += size
            next_offset = last + 1
            at += size
    carried = (next_offset, bytes_since_entry, max_timestamp, offset_of_max, leader_epoch)
    return at, reason, size, *carried, entries.tobytes(), epochs.tobytes(), producers


def _check_range(buffer: Buffer, start: int, end: int) -> None:
    if not 0 <= start <= end <= len(buffer):
        raise ValueError("range outside the buffer")


_walk: _Walk = _walk_python
_index_scan: Callable[..., tuple[Any, ...]] = _index_scan_python
inspect: Callable[[memoryview], Inspected | None] = _inspect_python
"""What is in a buffer that holds one produced batch about which nothing is in question: whole, its checksum right, its
header as producers fill it, and its records valid (looked at only where they are not compressed). None says that it
needs a closer look, which may well find nothing wrong."""


def use(native: bool) -> None:
    """Choose the twin for this process. Asking for the native one where it was not built is an error."""
    global NATIVE, _walk, _index_scan, inspect  # noqa: PLW0603 - which twin is in force is the module's one state
    if not native:
        _walk, _index_scan, inspect = _walk_python, _index_scan_python, _inspect_python
    elif _native is None:
        raise RuntimeError("the native walks were not built")
    else:
        _walk, _index_scan, inspect = _native.walk, _native.index_scan, _native.inspect
    NATIVE = native


use(NATIVE_AVAILABLE)
