"""The encoder of ``_encode.h`` in Python, for where the extension was not built. Tests hold the bytes equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.wire import batch as batches
from barnabas.wire.checksum import crc32c
from barnabas.wire.murmur2 import partition_for_key
from barnabas.wire.records import append_varint

MAX_RECORD_BYTES = (2**31 - 1) // 2
_LONGEST_LENGTH = 5

_REFUSED_PARTITION, _REFUSED_SIZE, _REFUSED_HEADER_KEY, _REFUSED_TIMESTAMP = 2, 3, 4, 5

_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qhi")
_CRC = Struct(">I")


class Rows(NamedTuple):
    """The columns of records. None where there is no such column."""

    row_count: int
    key: pa.Array | None
    value: pa.Array | None
    timestamp: pa.Array | None
    """Microseconds; null for the time of writing."""
    partition: pa.Array | None
    headers: pa.Array | None


class _Refused(Exception):
    def __init__(self, refusal: int) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class _Open:
    __slots__ = ("base_timestamp", "body", "count", "max_timestamp", "partition")

    def __init__(self, partition: int, timestamp: int) -> None:
        self.partition = partition
        self.base_timestamp = self.max_timestamp = timestamp
        self.count = 0
        self.body = bytearray(batches.HEADER_SIZE)

    def record(self, timestamp: int, fields: bytes) -> bytearray:
        """The next record, but for its length."""
        record = bytearray(1)
        append_varint(record, timestamp - self.base_timestamp)
        append_varint(record, self.count)
        record += fields
        return record

    def add(self, record: bytearray, timestamp: int) -> None:
        append_varint(self.body, len(record))
        self.body += record
        self.count += 1
        self.max_timestamp = max(self.max_timestamp, timestamp)

    def seal(self) -> bytearray:
        header = batches.BatchHeader(
            base_offset=0,
            batch_length=len(self.body) - batches.LOG_OVERHEAD,
            leader_epoch=-1,
            magic=batches.MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=self.count,
        )
        self.body[: batches.HEADER_SIZE] = batches.encode_header(header)
        return self.body


class Encoder:
    def __init__(self, partition_count: int, sticky: int, max_batch_bytes: int) -> None:
        self._partition_count = partition_count
        self._sticky = sticky
        self._max_batch_bytes = max_batch_bytes
        self._open: dict[int, _Open] = {}
        self._sealed: list[tuple[int, int, Any]] = []

    def append(self, rows: Rows, now_ms: int) -> tuple[int, int, list[tuple[int, int, Any]], int]:
        refusal, taken = 0, 0
        for key, value, timestamp_us, partition, headers in _each(rows):
            try:
                self._append(key, value, timestamp_us, partition, headers, now_ms)
            except _Refused as refused:
                refusal = refused.refusal
                break
            taken += 1
        return refusal, taken, self._given(), sum(len(batch.body) for batch in self._open.values())

    def flush(self) -> list[tuple[int, int, Any]]:
        for partition in sorted(self._open):
            self._seal(partition)
        return self._given()

    def _append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_us: int | None,
        partition: int | None,
        headers: list[dict[str, Any]] | None,
        now_ms: int,
    ) -> None:
        is_sticky = partition is None and key is None
        chosen = self._partition(key) if partition is None else partition
        if not 0 <= chosen < self._partition_count:
            raise _Refused(_REFUSED_PARTITION)
        fields = _fields(key, value, headers)
        if timestamp_us is not None and timestamp_us < 0:
            raise _Refused(_REFUSED_TIMESTAMP)
        timestamp = now_ms if timestamp_us is None else timestamp_us // 1000
        while True:
            batch = self._open.get(chosen) or _Open(chosen, timestamp)
            record = batch.record(timestamp, fields)
            if not batch.count or len(batch.body) + len(record) + _LONGEST_LENGTH <= self._max_batch_bytes:
                break
            self._seal(chosen)
            chosen = self._sticky if is_sticky else chosen
        if len(record) > MAX_RECORD_BYTES:
            raise _Refused(_REFUSED_SIZE)
        self._open[chosen] = batch
        batch.add(record, timestamp)

    def _partition(self, key: bytes | None) -> int:
        return self._sticky if key is None else partition_for_key(key, self._partition_count)

    def _seal(self, partition: int) -> None:
        batch = self._open.pop(partition)
        self._sealed.append((partition, batch.count, batch.seal()))
        if partition == self._sticky:
            self._sticky = (self._sticky + 1) % self._partition_count

    def _given(self) -> list[tuple[int, int, Any]]:
        given, self._sealed = self._sealed, []
        return given


def stamp(data: memoryview, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    _ATTRIBUTES.pack_into(data, 21, attributes)
    _PRODUCER.pack_into(data, 43, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(data, 17, crc32c(data[21:]))


def _each(rows: Rows) -> Iterator[tuple[Any, ...]]:
    timestamps = None if rows.timestamp is None else rows.timestamp.cast(pa.int64())
    arrays = (rows.key, rows.value, timestamps, rows.partition, rows.headers)
    return zip(*(_listed(array, rows.row_count) for array in arrays), strict=True)


def _listed(array: pa.Array | None, count: int) -> Sequence[Any]:
    return [None] * count if array is None else array.to_pylist()


def _fields(key: bytes | None, value: bytes | None, headers: list[dict[str, Any]] | None) -> bytes:
    out = bytearray()
    _append_bytes(out, key)
    _append_bytes(out, value)
    append_varint(out, len(headers or ()))
    for header in headers or ():
        if header is None or header["key"] is None:
            raise _Refused(_REFUSED_HEADER_KEY)
        _append_bytes(out, header["key"].encode())
        _append_bytes(out, header["value"])
    return bytes(out)


def _append_bytes(out: bytearray, field: bytes | None) -> None:
    append_varint(out, -1 if field is None else len(field))
    out += field or b""
