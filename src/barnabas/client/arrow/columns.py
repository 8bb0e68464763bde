"""Fetched bytes to Arrow columns, with the schema of Spark's own Kafka source.

The collector goes over plain batches natively and stops at those that need a look: compressed ones, and where there
were aborted transactions all that belongs to one. Where ``_columns.c`` was not built, ``fallback`` takes its place;
NATIVE tells which is in force, and tests hold the two equal.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import pyarrow as pa

from barnabas.client.wire.data import Fetched
from barnabas.client.wire.decoding import AbortedProducers
from barnabas.client.wire.errors import ProtocolError
from barnabas.wire import batch as batches
from barnabas.wire import records as records_of_batch
from barnabas.wire.batch import BatchHeader, CorruptBatch, InvalidRecord, UnsupportedCodec, UnsupportedMagic
from barnabas.wire.compression import DecompressionError
from barnabas.wire.records import MAX_DECOMPRESSED_BYTES
from barnabas.wire.walk import REASONS, Reason

if TYPE_CHECKING:
    from barnabas.client.arrow.fallback import Collector

native_module: ModuleType | None
try:
    import barnabas.client.arrow._columns as native_module  # type: ignore[no-redef]
except ImportError:
    native_module = None

NATIVE_AVAILABLE = native_module is not None
NATIVE = NATIVE_AVAILABLE
"""Whether the native collector is in force; set by ``use``."""

MAX_COLUMN_BYTES = 256 * 1024 * 1024
"""Records of one RecordBatch, decompressed. What does not fit any more is left for the next fetch."""

KEPT_BLOCK_BYTES = 32 * 1024 * 1024
KEPT_BYTES = 128 * 1024 * 1024
"""What a process that reads or writes keeps of freed memory; see ``keep_freed_memory``."""

MAX_INT64 = 2**63 - 1
BAD_COUNT = 11
"""Follows the last of walk.Reason: the header claims more records than fit."""

_SMALLEST_CONSTANT_ROWS = 4096

Strings: TypeAlias = tuple[int, Any, Any, Any]
"""Null count, and the memory of validity, offsets and data."""


class ColumnsRead(NamedTuple):
    batch: pa.RecordBatch | None
    """None where no row is in the range."""
    next_offset: int
    """Where to fetch on: beyond what was left out, too. Not below ``stop`` where the range is done."""


class Step(IntEnum):
    """Why a walk stopped. The numbers are shared with ``_columns.c``."""

    TAKEN = -1
    END = 0
    PARTIAL = 1
    SPECIAL = 2
    REACHED = 3
    FULL = 4
    LENGTH = 5
    MAGIC = 6
    HEADER = 7
    CRC = 8
    RECORD = 9


def use(native: bool) -> None:
    """Choose the code for this process. Asking for the native one where it was not built is an error."""
    global NATIVE  # noqa: PLW0603 - which code is in force is the module's one state
    if native and native_module is None:
        raise RuntimeError("the native columns were not built")
    NATIVE = native


def keep_freed_memory() -> None:
    """Columns of some megabytes come and go here, several a second. To hand each back to the system and have it cleared
    for the next costs as much as filling it: a task with values of 1 kB takes half as long where they are kept."""
    if native_module is not None:
        native_module.keep_freed_memory(KEPT_BLOCK_BYTES, KEPT_BYTES)


def _collector(headers: bool, max_bytes: int) -> Collector:
    if NATIVE and native_module is not None:
        made: Collector = native_module.Collector(headers, max_bytes)
        return made
    from barnabas.client.arrow import fallback  # noqa: PLC0415 - it imports this module

    return fallback.Collector(headers, max_bytes)


_HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_HEADERS = pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS)))
_TIMESTAMP = pa.timestamp("us", tz="UTC")


@lru_cache
def arrow_schema(headers: bool) -> pa.Schema:
    """What Spark's conversion of its Kafka source's schema to Arrow gives."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, pa.field("headers", _HEADERS)] if headers else fields)


def read_columns(
    fetched: Fetched,
    start: int,
    stop: int,
    *,
    headers: bool,
    read_committed: bool,
    max_bytes: int = MAX_COLUMN_BYTES,
) -> ColumnsRead:
    """The records with start <= offset < stop; control records and, where asked, aborted transactions left out.

    Raises CorruptBatch or InvalidRecord that name partition and offset, UnsupportedMagic, UnsupportedCodec or
    DecompressionError, and ProtocolError where a first batch is cut off: asking again would bring the same.
    """
    if start >= stop:
        return ColumnsRead(None, start)
    walk = _Walk(fetched, start, stop, _collector(headers, max_bytes), read_committed)
    next_offset = walk.run()
    if len(fetched.records) and next_offset == start:
        raise ProtocolError(f"{fetched.partition}: {len(fetched.records)} bytes at offset {start} hold no whole batch")
    return ColumnsRead(_record_batch(fetched, walk.collector, headers), next_offset)


class _Walk:
    __slots__ = ("aborted", "collector", "fetched", "next_offset", "start", "stop", "view")

    def __init__(self, fetched: Fetched, start: int, stop: int, collector: Collector, read_committed: bool) -> None:
        self.fetched = fetched
        self.view = fetched.records
        self.start = self.next_offset = start
        self.stop = stop
        self.collector = collector
        # Where nothing was aborted, a transaction's batches are as good as any and its markers mean nothing.
        self.aborted = AbortedProducers(fetched.aborted) if read_committed and fetched.aborted else None

    def run(self) -> int:
        """Walks until the range or the bytes end; returns the next offset."""
        position = 0
        while True:
            step, position, self.next_offset, reason, index = self.collector.walk(
                self.view, position, self.start, self.stop, self.next_offset, self.aborted is not None
            )
            if step == Step.SPECIAL:
                header = batches.read_header(self.view, position)
                if not self._take_special(position, header):
                    return min(self.next_offset, self.stop)
                position += header.size
            elif step in (Step.END, Step.PARTIAL, Step.FULL):
                return min(self.next_offset, self.stop)
            elif step == Step.REACHED:
                return self.stop
            else:
                self._fail(Step(step), position, reason, index)

    def _take_special(self, position: int, header: BatchHeader) -> bool:
        """False where there is no room for the batch."""
        if header.is_control:
            if self.aborted is not None:
                self.aborted.end(self.view, position, header)
        elif not (self.aborted is not None and self.aborted.holds(header)) and not self._take(position, header):
            return False
        self.next_offset = max(self.next_offset, header.next_offset)
        return True

    def _take(self, position: int, header: BatchHeader) -> bool:
        try:
            payload = records_of_batch.payload(self.view, position, header, max_bytes=MAX_DECOMPRESSED_BYTES)
        except (DecompressionError, UnsupportedCodec) as error:
            error.add_note(self._place(header.base_offset))
            raise
        step, reason, index = self.collector.records(
            payload,
            header.base_offset,
            header.last_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.attributes,
            header.record_count,
            self.start,
            self.stop,
        )
        if step == Step.RECORD:
            self._fail(Step.RECORD, position, reason, index)
        return step != Step.FULL

    def _place(self, base_offset: int) -> str:
        return f"{self.fetched.partition}: the batch at offset {base_offset}"

    def _fail(self, step: Step, position: int, reason: int, index: int) -> NoReturn:
        if step in (Step.LENGTH, Step.MAGIC):
            try:
                batches.read_header(self.view, position)
            except CorruptBatch as error:
                raise CorruptBatch(f"{self._place(self.next_offset)}: {error}") from None
            except UnsupportedMagic as error:
                error.add_note(self._place(self.next_offset))
                raise
        header = batches.read_header(self.view, position)
        place = self._place(header.base_offset)
        if step is Step.CRC:
            raise CorruptBatch(f"{place} has a bad checksum")
        if step is Step.HEADER:
            raise CorruptBatch(f"{place} has impossible offsets or counts")
        if reason == BAD_COUNT:
            raise InvalidRecord(f"{place} claims {header.record_count} records, more than fit", index)
        text = "its offset is not above the one before it, or outside the batch"
        why = text if reason == Reason.OFFSET else REASONS[Reason(reason)]
        raise InvalidRecord(f"{place}: {why}", index)


def _record_batch(fetched: Fetched, collector: Collector, headers: bool) -> pa.RecordBatch | None:
    rows, key, value, offset, timestamp, timestamp_type, header_parts = collector.finish()
    if rows == 0:
        return None
    arrays = [
        _strings(pa.binary(), rows, key),
        _strings(pa.binary(), rows, value),
        _topic_column(fetched.partition.topic, rows),
        _partition_column(fetched.partition.partition, rows),
        _numbers(pa.int64(), rows, offset),
        _numbers(_TIMESTAMP, rows, timestamp),
        _numbers(pa.int32(), rows, timestamp_type),
    ]
    if header_parts is not None:
        arrays.append(_headers(rows, header_parts))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(headers))


def _numbers(kind: pa.DataType, rows: int, memory: object) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(memory)], null_count=0)


def _strings(kind: pa.DataType, rows: int, parts: Strings) -> pa.Array:
    null_count, valid, offsets, data = parts
    validity = pa.py_buffer(valid) if null_count else None
    return pa.Array.from_buffers(
        kind, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=null_count
    )


def _headers(rows: int, parts: tuple[Any, ...]) -> pa.Array:
    null_count, valid, offsets, count, key, value, has_bad_utf8 = parts
    keys = _strings(pa.binary(), count, key)
    # Kafka's clients replace what is no UTF-8; a string column with such bytes would fail far from here.
    strings = _readable(keys) if has_bad_utf8 else keys.view(pa.string())
    pairs = pa.StructArray.from_arrays([strings, _strings(pa.binary(), count, value)], fields=_HEADER_FIELDS)
    validity = pa.py_buffer(valid) if null_count else None
    return pa.Array.from_buffers(
        _HEADERS, rows, [validity, pa.py_buffer(offsets)], null_count=null_count, children=[pairs]
    )


def _readable(keys: pa.Array) -> pa.Array:
    return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _topic_column(topic: str, rows: int) -> pa.Array:
    return _constant(topic, pa.string(), _room_for(rows)).slice(0, rows)


def _partition_column(partition: int, rows: int) -> pa.Array:
    return _constant(partition, pa.int32(), _room_for(rows)).slice(0, rows)


def _room_for(rows: int) -> int:
    return max(_SMALLEST_CONSTANT_ROWS, 1 << (rows - 1).bit_length())


@lru_cache(maxsize=16)
def _constant(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    """Made once and cut to length: a slice costs nothing."""
    return pa.repeat(pa.scalar(value, kind), rows)
