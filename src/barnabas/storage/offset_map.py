"""Which records of a log the cleaner keeps: the map from key to latest offset, and the walks that fill and ask it.

The map exists twice, natively (``_compact.c``) and in Python; ``new_map`` takes the one that ``walk`` has in force,
and tests hold the two equal. Both know keys by a 128-bit hash alone, so that the memory is bounded whatever the keys
are.

``index_chunk`` and ``filter_chunk`` go over a row of batches natively and stop at one that needs the caller's eye
(Step.SPECIAL): compressed, transactional, control, the last of a producer, or with tombstones that get their delete
horizon. The Python twin leaves every batch to the caller. ``index_records`` and ``filter_records`` are for the
records of one batch, decompressed.
"""

from __future__ import annotations

from array import array
from enum import IntEnum
from hashlib import blake2b
from mmap import mmap
from types import ModuleType
from typing import NamedTuple, TypeAlias

from barnabas.wire import walk
from barnabas.wire.batch import HEADER_SIZE, Buffer, CorruptBatch, InvalidRecord, UnsupportedMagic, read_header
from barnabas.wire.records import append_varint, read_varint, wrapped

_native: ModuleType | None
try:
    import barnabas.storage._compact as _native  # type: ignore[no-redef]
except ImportError:
    _native = None

NATIVE_AVAILABLE = _native is not None
SLOT_BYTES = 24
"""A hash of sixteen bytes and an offset, as in Kafka's map: so log.cleaner.dedupe.buffer.size means the same."""


class Step(IntEnum):
    """How a walk over a chunk ended. The numbers are shared with ``_compact.c``."""

    END = 0
    PARTIAL = 1
    """The rest is the beginning of a batch."""
    SPECIAL = 2
    """The batch at the stop is the caller's; its checksum has been found right."""
    FULL = 3
    """The map has no room for another key."""
    BAD = 4


class Indexed(NamedTuple):
    step: Step
    stop: int
    needed_bytes: int
    latest_offset: int
    """Of the batches taken in; -1 where there was none."""


class Filtered(NamedTuple):
    step: Step
    stop: int
    needed_bytes: int
    written: int


class Kept(NamedTuple):
    record_count: int
    has_tombstones: bool
    max_timestamp: int
    records: bytes


class NativeMap:
    __slots__ = ("_limit", "_native", "_secret", "_table", "_used")

    def __init__(self, native: ModuleType, capacity: int, secret: bytes) -> None:
        self._native = native
        self._limit = capacity
        self._secret = secret
        self._used = 0
        # Zeroed by the kernel page by page as it is used: to zero it here would hold the GIL for long.
        self._table = mmap(-1, SLOT_BYTES * (capacity + capacity // 8 + 2))

    def __len__(self) -> int:
        return self._used

    def close(self) -> None:
        """Gives the memory back."""
        self._table.close()

    def index_chunk(self, buffer: bytes, start: int, min_offset: int) -> Indexed:
        step, stop, needed, self._used, latest = self._native.index_chunk(
            self._table, self._secret, self._used, self._limit, buffer, start, len(buffer), min_offset
        )
        return Indexed(Step(step), stop, needed, latest)

    def filter_chunk(
        self, buffer: bytes, start: int, specials: array[int], latest_offset: int, now_ms: int, out: bytearray
    ) -> Filtered:
        """Writes what is kept to ``out``, which is as long as the buffer at least."""
        step, *rest = self._native.filter_chunk(
            self._table, self._secret, buffer, start, len(buffer), specials, latest_offset, now_ms, out
        )
        return Filtered(Step(step), *rest)

    def index_records(self, payload: Buffer, count: int, base_offset: int, min_offset: int) -> bool:
        """False where the map is full; some of the keys may have been taken in."""
        step, self._used = self._native.index_records(
            self._table, self._secret, self._used, self._limit, payload, count, base_offset, min_offset
        )
        if step == Step.BAD:
            raise InvalidRecord("a record cannot be read")
        return bool(step != Step.FULL)

    def filter_records(
        self,
        payload: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        *,
        latest_offset: int,
        keep_tombstones: bool,
        shift: int = 0,
    ) -> Kept:
        """``shift`` is taken off every timestamp delta, for a base timestamp that becomes so much larger."""
        asked = (base_offset, base_timestamp, latest_offset, keep_tombstones, shift)
        try:
            step, *found = self._native.filter_records(self._table, self._secret, payload, count, *asked)
        except ValueError as reason:
            raise InvalidRecord(str(reason)) from None
        if step == Step.BAD:
            raise InvalidRecord("a record cannot be read")
        return Kept(*found)


class _Record(NamedTuple):
    start: int
    body: int
    offset_at: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


class PythonMap:
    __slots__ = ("_limit", "_offsets", "_secret")

    def __init__(self, capacity: int, secret: bytes) -> None:
        self._limit = capacity
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def close(self) -> None:
        self._offsets.clear()

    def index_chunk(self, buffer: bytes, start: int, min_offset: int) -> Indexed:
        return Indexed(*_next_batch(buffer, start), -1)

    def filter_chunk(
        self,
        buffer: bytes,
        start: int,
        specials: array[int],
        latest_offset: int,
        now_ms: int,
        out: bytearray,
    ) -> Filtered:
        return Filtered(*_next_batch(buffer, start), 0)

    def index_records(self, payload: Buffer, count: int, base_offset: int, min_offset: int) -> bool:
        offsets = self._offsets
        for record in _read_records(bytes(payload), count):
            offset = base_offset + record.offset_delta
            if record.key is None or offset < min_offset:
                continue
            digest = self._digest(record.key)
            if digest not in offsets and len(offsets) >= self._limit:
                return False
            offsets[digest] = offset
        return True

    def filter_records(
        self,
        payload: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        *,
        latest_offset: int,
        keep_tombstones: bool,
        shift: int = 0,
    ) -> Kept:
        data = bytes(payload)
        kept, has_tombstones, max_timestamp = 0, False, -1
        out = bytearray()
        for record in _read_records(data, count):
            if not self._keeps(record, base_offset + record.offset_delta, latest_offset, keep_tombstones):
                continue
            kept += 1
            has_tombstones |= record.is_tombstone
            max_timestamp = max(max_timestamp, wrapped(base_timestamp + record.timestamp_delta))
            if shift:
                _append_shifted(out, data, record, shift)
            else:
                out += data[record.start : record.end]
        return Kept(kept, has_tombstones, max_timestamp, bytes(out))

    def _keeps(self, record: _Record, offset: int, latest_offset: int, keep_tombstones: bool) -> bool:
        if offset > latest_offset:
            return True
        if record.key is None or (record.is_tombstone and not keep_tombstones):
            return False
        return offset >= self._offsets.get(self._digest(record.key), -1)

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()


def _next_batch(buffer: bytes, start: int) -> tuple[Step, int, int]:
    """Every batch is the caller's; where there is a whole one, that is."""
    left = len(buffer) - start
    if not left:
        return Step.END, start, 0
    if left < HEADER_SIZE:
        return Step.PARTIAL, start, HEADER_SIZE
    try:
        size = read_header(buffer, start).size
    except (CorruptBatch, UnsupportedMagic):
        return Step.BAD, start, 0
    return (Step.PARTIAL, start, size) if left < size else (Step.SPECIAL, start, 0)


def _read_records(data: bytes, count: int) -> list[_Record]:
    if count > len(data):
        raise InvalidRecord("more records than bytes")
    found: list[_Record] = []
    at = 0
    try:
        for _ in range(count):
            found.append(_read_record(data, at))
            at = found[-1].end
    except (IndexError, ValueError):
        raise InvalidRecord("a record cannot be read") from None
    if at != len(data):
        raise InvalidRecord("a record cannot be read")
    return found


def _read_record(data: bytes, start: int) -> _Record:
    length, body = read_varint(data, start)
    end = body + length
    if length < 1 or end > len(data):
        raise ValueError(length)
    timestamp_delta, offset_at = read_varint(data, body + 1)
    offset_delta, at = read_varint(data, offset_at)
    key_length, at = read_varint(data, at)
    if offset_delta < 0 or key_length < -1 or key_length > end - at:
        raise ValueError(key_length)
    key = data[at : at + key_length] if key_length >= 0 else None
    value_length, at = read_varint(data, at + max(key_length, 0))
    if value_length < -1 or at > end:
        raise ValueError(value_length)
    return _Record(start, body, offset_at, end, timestamp_delta, offset_delta, key, value_length == -1)


def _append_shifted(out: bytearray, data: bytes, record: _Record, shift: int) -> None:
    moved = bytearray(data[record.body : record.body + 1])
    append_varint(moved, wrapped(record.timestamp_delta - shift))
    moved += data[record.offset_at : record.end]
    append_varint(out, len(moved))
    out += moved


OffsetMap: TypeAlias = NativeMap | PythonMap


def new_map(capacity: int, secret: bytes) -> OffsetMap:
    """For so many keys; ``secret`` are sixteen random bytes."""
    if walk.NATIVE and _native is not None:
        return NativeMap(_native, capacity, secret)
    return PythonMap(capacity, secret)
