"""The collector of ``_columns.c`` and the encoder of ``_encode.h`` in Python, for where the extension was not built.

Slow and simple: a record at a time. Tests hold rows, bytes and refusals equal to those of the native code.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pyarrow as pa

from barnabas.client.arrow.columns import BAD_COUNT, MAX_INT64, Step, Strings
from barnabas.client.arrow.encoding import Refusal, Rows, Sealed
from barnabas.wire import batch as batches
from barnabas.wire.murmur2 import partition_for_key
from barnabas.wire.records import BatchBuilder, Header, encode_record
from barnabas.wire.walk import BadRecord, Reason, Stop, read_batch, read_records

MAX_RECORD_BYTES = (2**31 - 1) // 2

_LONGEST_LENGTH = 5
_MAX_MILLISECONDS = MAX_INT64 // 1000

_STEPS = {
    Stop.END: Step.END,
    Stop.PARTIAL: Step.PARTIAL,
    Stop.LENGTH: Step.LENGTH,
    Stop.MAGIC: Step.MAGIC,
    Stop.HEADER: Step.HEADER,
}


class Collector:
    """Leaves every batch to the caller, which hands it back decompressed."""

    def __init__(self, with_headers: bool, max_bytes: int) -> None:
        self._with_headers = with_headers
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._rows: list[tuple[bytes | None, bytes | None, int, int, int]] = []
        self._headers: list[list[tuple[bytes, bytes | None]] | None] = []

    def walk(
        self, buffer: memoryview, position: int, _first: int, stop: int, next_offset: int, has_transactions: bool, /
    ) -> tuple[int, int, int, int, int]:
        """Goes over the batches: (step, position, next offset, reason, index of the record)."""
        while True:
            found, size, why = read_batch(buffer, position, len(buffer), check_crc=False)
            if found is None:
                step = _STEPS[why]
                break
            header = batches.read_header(buffer, position)
            if header.last_offset >= MAX_INT64:
                step = Step.HEADER
            elif header.base_offset >= stop:
                step = Step.REACHED
            elif header.last_offset < next_offset and not (has_transactions and header.is_control):
                position += size
                continue
            else:
                step = Step.SPECIAL if batches.check_crc(buffer, position, size) else Step.CRC
            break
        return step, position, next_offset, Reason.WHOLE, -1

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
        """Takes one decompressed batch in: (step, reason, index of the record)."""
        size = len(payload) + (0 if attributes & batches.CODEC_MASK else batches.HEADER_SIZE)
        if self._rows and size > self._max_bytes - self._used_bytes:
            return Step.FULL, 0, -1
        if count < 0 or count > len(payload) // batches.SMALLEST_RECORD:
            return Step.RECORD, BAD_COUNT, -1
        self._used_bytes += len(payload)
        is_append_time = bool(attributes & batches.LOG_APPEND_TIME)
        base = None if is_append_time else base_timestamp
        try:
            for record in read_records(payload, count, base, last_delta=last_offset - base_offset):
                offset = base_offset + record.offset_delta
                if first <= offset < stop:
                    timestamp = max_timestamp if is_append_time else base_timestamp + record.timestamp_delta
                    clamped = max(-_MAX_MILLISECONDS, min(timestamp, _MAX_MILLISECONDS))
                    self._rows.append((record.key, record.value, offset, clamped * 1000, int(is_append_time)))
                    self._headers.append(record.headers or None)
        except BadRecord as bad:
            return Step.RECORD, bad.reason, bad.index
        return Step.TAKEN, 0, -1

    def finish(self) -> tuple[int, Strings, Strings, Any, Any, Any, tuple[Any, ...] | None]:
        """Rows, key, value, offset, timestamp, timestamp type, headers."""
        kinds = (pa.binary(), pa.binary(), pa.int64(), pa.int64(), pa.int32())
        columns = list(zip(*self._rows, strict=True)) or [()] * len(kinds)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        numbers = [array.buffers()[1] for array in arrays[2:]]
        headers = self._finished_headers() if self._with_headers else None
        return len(self._rows), _strings(arrays[0]), _strings(arrays[1]), numbers[0], numbers[1], numbers[2], headers

    def _finished_headers(self) -> tuple[Any, ...]:
        pairs = [pair for headers in self._headers for pair in headers or ()]
        ends = accumulate((len(headers or ()) for headers in self._headers), initial=0)
        is_valid = pa.array([None if headers is None else True for headers in self._headers], pa.bool_())
        keys = pa.array([key for key, _ in pairs], pa.binary())
        values = pa.array([value for _, value in pairs], pa.binary())
        offsets = pa.array(ends, pa.int32()).buffers()[1]
        is_bad = any(not _is_utf8(key) for key, _ in pairs)
        return is_valid.null_count, is_valid.buffers()[0], offsets, len(pairs), _strings(keys), _strings(values), is_bad


def _strings(array: pa.Array) -> Strings:
    valid, offsets, data = array.buffers()
    return array.null_count, valid, offsets or bytes(4), data or b""


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Refused(Exception):
    """A row that no record can be made of; carries the reason."""


class Encoder:
    def __init__(self, partition_count: int, sticky: int, max_batch_bytes: int) -> None:
        self._partition_count = partition_count
        self._sticky = sticky
        self._max_batch_bytes = max_batch_bytes
        self._open: dict[int, tuple[BatchBuilder, int]] = {}
        """With the timestamp of its first record."""
        self._sealed: Sealed = []

    def append(self, rows: Rows, now_ms: int) -> tuple[int, int, Sealed, int]:
        """(refusal or 0, its row, batches that are full, bytes in those that are open)."""
        times = None if rows.timestamp is None else rows.timestamp.cast(pa.int64())
        arrays = (rows.key, rows.value, times, rows.partition, rows.headers)
        lists: list[list[Any]] = [[None] * rows.row_count if array is None else array.to_pylist() for array in arrays]
        refusal, count = 0, 0
        for row in zip(*lists, strict=True):
            try:
                self._append(now_ms, *row)
            except _Refused as refused:
                refusal = refused.args[0]
                break
            count += 1
        return refusal, count, self._take_sealed(), sum(builder.size for builder, _ in self._open.values())

    def flush(self) -> Sealed:
        for partition in sorted(self._open):
            self._seal(partition)
        return self._take_sealed()

    def _append(
        self,
        now_ms: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_us: int | None,
        partition: int | None,
        header_rows: list[dict[str, Any] | None] | None,
    ) -> None:
        is_sticky = partition is None and key is None
        if partition is None:
            partition = self._sticky if key is None else partition_for_key(key, self._partition_count)
        if not 0 <= partition < self._partition_count:
            raise _Refused(Refusal.PARTITION)
        headers = [_header(row) for row in header_rows or ()]
        if timestamp_us is not None and timestamp_us < 0:
            raise _Refused(Refusal.TIMESTAMP)
        timestamp = now_ms if timestamp_us is None else timestamp_us // 1000
        while True:
            builder, first = self._open.get(partition) or (BatchBuilder(), timestamp)
            size = len(encode_record(timestamp - first, builder.count, key, value, headers))
            if not builder.count or builder.size + size + _LONGEST_LENGTH <= self._max_batch_bytes:
                break
            self._seal(partition)
            partition = self._sticky if is_sticky else partition
        if size > MAX_RECORD_BYTES:
            raise _Refused(Refusal.SIZE)
        self._open[partition] = builder, first
        builder.append(timestamp, key, value, headers)

    def _seal(self, partition: int) -> None:
        builder, _ = self._open.pop(partition)
        self._sealed.append((partition, builder.count, bytearray(builder.build())))
        if partition == self._sticky:
            self._sticky = (self._sticky + 1) % self._partition_count

    def _take_sealed(self) -> Sealed:
        sealed, self._sealed = self._sealed, []
        return sealed


def _header(row: dict[str, Any] | None) -> Header:
    if row is None or row["key"] is None:
        raise _Refused(Refusal.HEADER_KEY)
    return row["key"], row["value"]
