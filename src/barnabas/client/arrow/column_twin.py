"""The collector of ``_columns.c`` in Python and numpy, for where the extension was not built.

Python goes over the records' lengths; numpy reads the fields of all records of a batch at once. Where anything is wrong
with a batch, ``_fault`` goes over it record by record to name what is wrong first, as the native collector does.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas.wire.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    SMALLEST_RECORD,
    TRANSACTIONAL,
)
from barnabas.wire.checksum import crc32c
from barnabas.wire.walk import Reason

Longs: TypeAlias = npt.NDArray[np.int64]
Strings: TypeAlias = tuple[int, Any, Any, Any]

BAD_COUNT = 11
"""Follows the last of walk.Reason: the header claims more records than fit."""

_TAKEN, _END, _PARTIAL, _SPECIAL, _REACHED, _FULL, _LENGTH, _MAGIC, _HEADER, _CRC, _RECORD = range(-1, 10)

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_MAX_MILLISECONDS = _MAX_INT64 // 1000
_LONGEST_VARINT = 10
_FIELDS = Struct(">qiibIhiqqqhii")


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    record_count: int
    size: int


class _Faulty(Exception):
    """Something in the batch is wrong; what comes first, ``_fault`` finds out."""


class Collector:
    def __init__(self, with_headers: bool, max_bytes: int) -> None:
        self._with_headers = with_headers
        self._max_bytes = min(max_bytes, _MAX_INT32)
        self._used_bytes = 0
        self._rows = 0
        self._keys: list[pa.Array] = []
        self._values: list[pa.Array] = []
        self._offsets: list[Longs] = []
        self._timestamps: list[Longs] = []
        self._types: list[npt.NDArray[np.int32]] = []
        self._headers: list[list[tuple[bytes, bytes | None]] | None] = []

    def walk(
        self, buffer: memoryview, position: int, first: int, stop: int, next_offset: int, has_transactions: bool, /
    ) -> tuple[int, int, int, int, int]:
        if not 0 <= position <= len(buffer):
            raise ValueError("position outside the buffer")
        while True:
            batch, step = _read_batch(buffer, position)
            if batch is None:
                break
            is_marker = has_transactions and bool(batch.attributes & CONTROL)
            if batch.base_offset >= stop:
                step = _REACHED
                break
            if batch.last_offset < next_offset and not is_marker:
                position += batch.size
                continue
            step, reason, index = self._take_batch(buffer, position, batch, first, stop, has_transactions)
            if step == _RECORD:
                return step, position, next_offset, reason, index
            if step != _TAKEN:
                break
            next_offset = batch.last_offset + 1
            position += batch.size
        return step, position, next_offset, Reason.WHOLE, -1

    def _take_batch(
        self, buffer: memoryview, position: int, batch: _Batch, first: int, stop: int, has_transactions: bool
    ) -> tuple[int, int, int]:
        whole = buffer[position : position + batch.size]
        if crc32c(whole[21:]) != int.from_bytes(whole[17:21], "big"):
            return _CRC, 0, -1
        if has_transactions and batch.attributes & (TRANSACTIONAL | CONTROL):
            return _SPECIAL, 0, -1
        if batch.attributes & CONTROL:
            return _TAKEN, 0, -1
        if batch.attributes & CODEC_MASK:
            return _SPECIAL, 0, -1
        if self._is_full(batch.size):
            return _FULL, 0, -1
        return self._take(bytes(whole[HEADER_SIZE:]), batch, first, stop)

    def records(
        self,
        payload: bytes,
        base_offset: int,
        last_offset: int,
        base_timestamp: int,
        max_timestamp: int,
        attributes: int,
        count: int,
        first: int,
        stop: int,
        /,
    ) -> tuple[int, int, int]:
        if base_offset < 0 or last_offset < base_offset or len(payload) > _MAX_INT32:
            raise ValueError("offsets go back, or the payload is too long")
        if self._is_full(len(payload)):
            return _FULL, 0, -1
        batch = _Batch(base_offset, last_offset, base_timestamp, max_timestamp, attributes, count, len(payload))
        return self._take(payload, batch, first, stop)

    def finish(self) -> tuple[int, Strings, Strings, Any, Any, Any, tuple[Any, ...] | None]:
        rows = self._rows
        result = (
            rows,
            _strings(_joined(self._keys)),
            _strings(_joined(self._values)),
            np.concatenate([*self._offsets, np.empty(0, np.int64)]),
            np.concatenate([*self._timestamps, np.empty(0, np.int64)]),
            np.concatenate([*self._types, np.empty(0, np.int32)]),
            self._finished_headers() if self._with_headers else None,
        )
        Collector.__init__(self, self._with_headers, self._max_bytes)
        return result

    def _finished_headers(self) -> tuple[Any, ...]:
        pairs = [pair for headers in self._headers if headers for pair in headers]
        counts = [len(headers) if headers else 0 for headers in self._headers]
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int32)
        valid = np.packbits(np.array([headers is not None for headers in self._headers], bool), bitorder="little")
        keys = _strings(pa.array([key for key, _ in pairs], pa.binary()))
        values = _strings(pa.array([value for _, value in pairs], pa.binary()))
        is_bad = int(any(not _is_utf8(key) for key, _ in pairs))
        return self._headers.count(None), valid, offsets, len(pairs), keys, values, is_bad

    def _is_full(self, size: int) -> bool:
        return self._rows > 0 and size > self._max_bytes - self._used_bytes

    def _take(self, payload: bytes, batch: _Batch, first: int, stop: int) -> tuple[int, int, int]:
        if batch.record_count < 0 or batch.record_count > len(payload) // SMALLEST_RECORD:
            return _RECORD, BAD_COUNT, -1
        self._used_bytes += len(payload)
        try:
            self._add(payload, batch, first, stop)
        except _Faulty:
            reason, index = _fault(payload, batch)
            return _RECORD, reason, index
        return _TAKEN, 0, -1

    def _add(self, payload: bytes, batch: _Batch, first: int, stop: int) -> None:
        starts, ends = _bodies(payload, batch.record_count)
        padded = np.frombuffer(payload + bytes(_LONGEST_VARINT), np.uint8)
        deltas, at = _varints(padded, starts + 1, ends, bits=64)
        offset_deltas, at = _varints(padded, at, ends, bits=32)
        key_lengths, key_starts = _varints(padded, at, ends, bits=32)
        at = _field_ends(key_starts, key_lengths, ends)
        value_lengths, value_starts = _varints(padded, at, ends, bits=32)
        at = _field_ends(value_starts, value_lengths, ends)
        header_counts, at = _varints(padded, at, ends, bits=32)
        _check(np.all(np.diff(offset_deltas, prepend=-1) > 0))
        _check(batch.record_count == 0 or offset_deltas[-1] <= batch.last_offset - batch.base_offset)
        _check(np.all((header_counts > 0) | ((header_counts == 0) & (at == ends))))
        timestamps = _timestamps(batch, deltas)
        offsets = batch.base_offset + offset_deltas
        kept = (offsets >= first) & (offsets < stop)
        self._add_headers(payload, header_counts, at, ends, kept)
        self._keys.append(_gather(payload, key_starts[kept], key_lengths[kept]))
        self._values.append(_gather(payload, value_starts[kept], value_lengths[kept]))
        self._offsets.append(offsets[kept])
        self._timestamps.append(timestamps[kept])
        is_append_time = int(bool(batch.attributes & LOG_APPEND_TIME))
        count = int(np.count_nonzero(kept))
        self._types.append(np.full(count, is_append_time, np.int32))
        self._rows += count

    def _add_headers(self, payload: bytes, counts: Longs, at: Longs, ends: Longs, kept: npt.NDArray[np.bool_]) -> None:
        found: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for index in np.flatnonzero(counts).tolist():
            found[index] = _read_headers(payload, int(counts[index]), int(at[index]), int(ends[index]))
        if self._with_headers:
            self._headers += [found.get(index) for index in np.flatnonzero(kept).tolist()]


def _read_batch(buffer: memoryview, position: int) -> tuple[_Batch | None, int]:
    left = len(buffer) - position
    if left < HEADER_SIZE:
        return None, _PARTIAL if left else _END
    base, length, _, magic, _, attributes, delta, base_timestamp, max_timestamp, _, _, _, count = _FIELDS.unpack_from(
        buffer, position
    )
    if length < HEADER_SIZE - LOG_OVERHEAD:
        return None, _LENGTH
    if magic != 2:
        return None, _MAGIC
    if left < length + LOG_OVERHEAD:
        return None, _PARTIAL
    if base < 0 or delta < 0 or count < 0 or base >= _MAX_INT64 - delta:
        return None, _HEADER
    return _Batch(base, base + delta, base_timestamp, max_timestamp, attributes, count, length + LOG_OVERHEAD), _TAKEN


def _bodies(payload: bytes, count: int) -> tuple[Longs, Longs]:
    """Where each record begins, after its length, and where it ends."""
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    size = len(payload)
    padded = payload + b"\x80\x80"
    for _ in range(count):
        byte = padded[at]
        if byte < 0x80:
            length = byte
            at += 1
        elif (second := padded[at + 1]) < 0x80:
            length = byte & 0x7F | second << 7
            at += 2
        else:
            length, at = _read_varint(payload, at, size)
            length <<= 1
        starts.append(at)
        if length & 1 or length < 0:
            raise _Faulty
        at += length >> 1
        ends.append(at)
        if at > size:
            raise _Faulty
    _check(at == size)
    bodies = np.array(starts, np.int64), np.array(ends, np.int64)
    _check(np.all(bodies[0] < bodies[1]))
    return bodies


def _varints(data: npt.NDArray[np.uint8], at: Longs, ends: Longs, *, bits: int) -> tuple[Longs, Longs]:
    """The zigzag varints at each place, and the places after them."""
    first = data[at]
    raw = (first & 0x7F).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(first >= 0x80)
    for shift in range(7, 35 if bits == 32 else 70, 7):
        if not more.size:
            break
        byte = data[after[more]]
        _check(shift != 63 or np.all(byte <= 1))
        raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 0x80]
    _check(not more.size and np.all(after <= ends) and (bits == 64 or np.all(raw <= 0xFFFFFFFF)))
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), after


def _field_ends(starts: Longs, lengths: Longs, ends: Longs) -> Longs:
    _check(np.all((lengths >= -1) & (lengths <= ends - starts)))
    return starts + np.maximum(lengths, 0)


def _timestamps(batch: _Batch, deltas: Longs) -> Longs:
    if batch.attributes & LOG_APPEND_TIME:
        milliseconds = np.full(len(deltas), batch.max_timestamp, np.int64)
    else:
        if len(deltas):
            _check(batch.base_timestamp + int(deltas.max()) <= _MAX_INT64)
            _check(batch.base_timestamp + int(deltas.min()) >= -_MAX_INT64 - 1)
        milliseconds = batch.base_timestamp + deltas
    return np.clip(milliseconds, -_MAX_MILLISECONDS, _MAX_MILLISECONDS) * 1000


def _gather(payload: bytes, starts: Longs, lengths: Longs) -> pa.Array:
    """A column over the payload with every gap between two fields as an element of its own; then every second one."""
    count = len(starts)
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = starts
    edges[1::2] = starts + np.maximum(lengths, 0)
    edges[-1] = len(payload)
    spread = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(payload)])
    return spread.take(pa.array(np.arange(0, 2 * count, 2), mask=lengths < 0))


def _joined(pieces: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def _strings(array: pa.Array) -> Strings:
    valid, offsets, data = array.buffers()
    if not len(array):
        offsets, data = np.zeros(1, np.int32), b""
    return array.null_count, valid, offsets, b"" if data is None else data


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check(is_right: object) -> None:
    if not is_right:
        raise _Faulty


def _read_varint(data: bytes, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 35 if bits == 32 else 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), at
    raise _Faulty


def _read_headers(data: bytes, count: int, at: int, end: int) -> list[tuple[bytes, bytes | None]]:
    _check(count <= end - at)
    found: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        length, at = _read_varint(data, at, end)
        _check(0 <= length <= end - at)
        key = data[at : at + length]
        length, at = _read_varint(data, at + length, end)
        _check(-1 <= length <= end - at)
        found.append((key, data[at : at + length] if length >= 0 else None))
        at += max(length, 0)
    _check(at == end)
    return found


def _fault(payload: bytes, batch: _Batch) -> tuple[int, int]:
    """The first thing wrong: its reason and the record's index."""
    at = 0
    previous_delta = -1
    for index in range(batch.record_count):
        try:
            length, at = _read_varint(payload, at, len(payload))
        except _Faulty:
            return Reason.VARINT, index
        if length < 0 or length > len(payload) - at:
            return Reason.LENGTH, index
        try:
            reason, previous_delta = _record_fault(payload, at, at + length, batch, previous_delta)
        except _Faulty:
            reason = Reason.VARINT
        if reason:
            return reason, index
        at += length
    return Reason.TRAILING, batch.record_count


def _record_fault(payload: bytes, at: int, end: int, batch: _Batch, previous_delta: int) -> tuple[Reason, int]:
    if at >= end:
        return Reason.FIELDS, 0
    timestamp_delta, at = _read_varint(payload, at + 1, end, bits=64)
    delta, at = _read_varint(payload, at, end)
    if delta <= previous_delta or delta > batch.last_offset - batch.base_offset:
        return Reason.OFFSET, 0
    for bad in (Reason.KEY, Reason.VALUE):
        length, at = _read_varint(payload, at, end)
        if length < -1 or length > end - at:
            return bad, 0
        at += max(length, 0)
    count, at = _read_varint(payload, at, end)
    if count < 0 or count > end - at:
        return Reason.HEADER_COUNT, 0
    for smallest in (0, -1) * count:
        length, at = _read_varint(payload, at, end)
        if length < smallest or length > end - at:
            return Reason.HEADER, 0
        at += max(length, 0)
    if at != end:
        return Reason.FIELDS, 0
    timestamp = batch.base_timestamp + timestamp_delta
    if not batch.attributes & LOG_APPEND_TIME and not -_MAX_INT64 - 1 <= timestamp <= _MAX_INT64:
        return Reason.TIMESTAMP, 0
    return Reason.WHOLE, delta
