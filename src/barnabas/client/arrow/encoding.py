"""Arrow columns to record batches: a batch is open per partition until it is full, then compressed and handed over.

Keys choose the partition as Kafka's default partitioner does (murmur2); rows without a key stay with one partition
until a batch of it is full, then go on to the next (KIP-480); a row's own partition comes before both. Where the
extension was not built, ``fallback`` encodes; ``columns.NATIVE`` tells which is in force.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from barnabas.client.arrow import columns
from barnabas.wire import batch as batches
from barnabas.wire.compression import Codec, compress

if TYPE_CHECKING:
    from barnabas.client.arrow.fallback import Encoder

DEFAULT_BATCH_BYTES = 1024 * 1024
"""Just below what a topic takes by default (max.message.bytes)."""

MAX_OPEN_BYTES = 64 * 1024 * 1024
"""Of all partitions of a topic together. Above, open batches are handed over as they are."""

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43

Sealed: TypeAlias = list[tuple[int, int, Any]]
"""Partition, number of records, and a batch that lacks its producer and its checksum."""


class Rows(NamedTuple):
    """The columns of records. None where there is no such column."""

    row_count: int
    key: pa.Array | None
    value: pa.Array | None
    timestamp: pa.Array | None
    """Microseconds; null for the time of writing."""
    partition: pa.Array | None
    headers: pa.Array | None


class Refusal(IntEnum):
    """Why a row cannot be sent. The numbers are shared with ``_encode.h``."""

    OFFSETS = 1
    PARTITION = 2
    SIZE = 3
    HEADER_KEY = 4
    TIMESTAMP = 5


class RowRefused(ValueError):
    """A row that no record can be made of. The text names topic and column."""


class EncodedBatch(NamedTuple):
    partition: int
    record_count: int
    data: memoryview
    """Whole but for its producer and checksum, which ``stamp`` writes."""
    attributes: int

    def stamp(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Again where a batch must be sent under another producer."""
        producer = producer_id, producer_epoch, base_sequence
        if columns.NATIVE and columns.native_module is not None:
            columns.native_module.stamp(self.data, self.attributes, *producer)
        else:
            _PRODUCER.pack_into(self.data, _PRODUCER_AT, *producer)
            batches.restamp(self.data, 0, attributes=self.attributes)


class BatchEncoder:
    """The open batches of one topic."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        *,
        codec: Codec = Codec.NONE,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
        max_open_bytes: int = MAX_OPEN_BYTES,
        sticky: int = 0,
    ) -> None:
        """``sticky`` is the partition that gets the first rows without a key."""
        self.topic = topic
        self.partition_count = partition_count
        self._codec = codec
        self._max_open_bytes = max_open_bytes
        self.open_bytes = 0
        self._encoder = _new_encoder(partition_count, sticky % partition_count, max_batch_bytes)

    def append(self, rows: Rows, now_ms: int) -> list[EncodedBatch]:
        """Takes rows in and returns the batches that are full now. Raises RowRefused, and is then of no more use."""
        refusal, row, sealed, self.open_bytes = self._encoder.append(rows, now_ms)
        if refusal:
            raise RowRefused(self._text(Refusal(refusal), rows, row))
        done = [self._encoded(item) for item in sealed]
        return done + self.flush() if self.open_bytes > self._max_open_bytes else done

    def flush(self) -> list[EncodedBatch]:
        """What is open, however little."""
        self.open_bytes = 0
        return [self._encoded(item) for item in self._encoder.flush()]

    def _encoded(self, sealed: tuple[int, int, Any]) -> EncodedBatch:
        partition, count, memory = sealed
        view = memoryview(memory)
        if self._codec is Codec.NONE:
            return EncodedBatch(partition, count, view, 0)
        body = compress(self._codec, view[batches.HEADER_SIZE :])
        whole = bytearray(batches.HEADER_SIZE + len(body))
        whole[: batches.HEADER_SIZE] = view[: batches.HEADER_SIZE]
        whole[batches.HEADER_SIZE :] = body
        whole[8:12] = (len(whole) - batches.LOG_OVERHEAD).to_bytes(4, "big")
        return EncodedBatch(partition, count, memoryview(whole), int(self._codec))

    def _text(self, refusal: Refusal, rows: Rows, row: int) -> str:
        if refusal is Refusal.PARTITION:
            asked = rows.partition[row].as_py() if rows.partition is not None else None
            return (
                f"column 'partition': {asked} is no partition of topic {self.topic}, which has {self.partition_count}"
            )
        texts = {
            Refusal.SIZE: "columns 'key' and 'value': a record of more than 1 GB",
            Refusal.HEADER_KEY: "column 'headers': a header without a key",
            Refusal.TIMESTAMP: "column 'timestamp': a time before 1970",
            Refusal.OFFSETS: "a column's memory is damaged",
        }
        return f"{texts[refusal]} (topic {self.topic})"


def rows_of(batch: pa.RecordBatch) -> Rows:
    """The columns that make a record, by their names, in the types that the encoder takes."""
    names = set(batch.schema.names)

    def column(name: str, kind: pa.DataType) -> pa.Array | None:
        return _as(batch.column(name), kind) if name in names else None

    return Rows(
        batch.num_rows,
        column("key", pa.binary()),
        column("value", pa.binary()),
        column("timestamp", _TIMESTAMP),
        column("partition", pa.int32()),
        column("headers", _HEADERS),
    )


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_string(array.type) and pa.types.is_binary(kind):
        return array.view(kind)  # without a copy
    return array.cast(kind)


def _new_encoder(partition_count: int, sticky: int, max_batch_bytes: int) -> _NativeEncoder | Encoder:
    if columns.NATIVE and columns.native_module is not None:
        return _NativeEncoder(columns.native_module.Encoder(partition_count, sticky, max_batch_bytes))
    from barnabas.client.arrow import fallback  # noqa: PLC0415 - it imports this module

    return fallback.Encoder(partition_count, sticky, max_batch_bytes)


class _NativeEncoder:
    __slots__ = ("_encoder", "flush")

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.flush = encoder.flush

    def append(self, rows: Rows, now_ms: int) -> tuple[int, int, Sealed, int]:
        result: tuple[int, int, Sealed, int] = self._encoder.append(
            rows.row_count,
            now_ms,
            _memory(rows.key),
            _memory(rows.value),
            _memory(rows.timestamp),
            _memory(rows.partition),
            *_header_memory(rows.headers),
        )
        return result


_Memory: TypeAlias = tuple[Any, Any, Any, int, int] | None


def _memory(array: pa.Array | None) -> _Memory:
    """Validity, numbers and data, where the rows begin, and how many they are."""
    if array is None or not len(array):
        return None
    valid, numbers, *data = array.buffers()
    return valid if array.null_count else None, numbers, data[0] if data else None, array.offset, len(array)


def _header_memory(lists: pa.Array | None) -> tuple[_Memory, _Memory, _Memory]:
    if lists is None or not len(lists):
        return None, None, None
    valid, offsets, *_ = lists.buffers()
    # A header that is null as a whole has no key either: flatten, unlike field, says so.
    keys, values = lists.values.flatten()
    outer = valid if lists.null_count else None, offsets, None, lists.offset, len(lists)
    return outer, _memory(keys), _memory(values)
