"""What is known of the rows of a task: a checksum, and where they come from."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.arrow.encoding import RowRefused
from barnabas.model.ids import TopicPartition
from barnabas.spark.exactly_once.decision import SourceOffsets

SOURCE_FIELDS = ("topic", "partition", "offset")


class Checksum:
    """Of keys and values in their order, however they are cut into batches."""

    def __init__(self) -> None:
        self._parts = dict.fromkeys(("key", "value"), (0, 0))

    def add(self, batch: pa.RecordBatch) -> None:
        for name, (lengths, contents) in self._parts.items():
            if name in batch.schema.names:
                column = batch.column(name).cast(pa.large_binary())
                self._parts[name] = _crc_of_lengths(column, lengths), _crc_of_contents(column, contents)

    @property
    def value(self) -> int:
        key, value = (zlib.crc32(struct.pack("<II", *part)) for part in self._parts.values())
        return key << 32 | value


def _crc_of_lengths(column: pa.LargeBinaryArray, so_far: int) -> int:
    """For "ab", "c" is not "a", "bc", and nothing is not an empty text."""
    lengths = pc.fill_null(pc.binary_length(column), -1).cast(pa.int64())
    return zlib.crc32(_bytes(lengths.buffers()[1], 8 * lengths.offset, 8 * len(lengths)), so_far)


def _crc_of_contents(column: pa.LargeBinaryArray, so_far: int) -> int:
    _, offsets, data = column.buffers()
    ends = pa.Array.from_buffers(pa.int64(), len(column) + 1, [None, offsets], offset=column.offset)
    start, end = ends[0].as_py(), ends[-1].as_py()
    return zlib.crc32(_bytes(data, start, end - start), so_far) if data is not None else so_far


def _bytes(buffer: Any, start: int, size: int) -> memoryview:
    return memoryview(buffer)[start : start + size]


class SourceRows:
    """Rows by their place in the source: a column of topic, partition and offset."""

    def __init__(self, column: str, already_in: SourceOffsets) -> None:
        self._column = column
        self._already_in = already_in
        self.reached: dict[TopicPartition, int] = {}
        self.left_out = 0

    def new_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without those that are in already."""
        source = batch.column(self._column)
        topic, partition, offset = (pc.struct_field(source, name) for name in SOURCE_FIELDS)
        if topic.null_count or partition.null_count or offset.null_count:
            raise RowRefused(f"column '{self._column}': null in a row, whose place in the source must be known")
        table = pa.table({"topic": topic, "partition": partition, "offset": offset})
        found = table.group_by(["topic", "partition"]).aggregate([("offset", "max")]).to_pylist()
        keep = pa.array([True] * batch.num_rows)
        for row in found:
            place = TopicPartition(row["topic"], row["partition"])
            self.reached[place] = max(self.reached.get(place, 0), row["offset_max"] + 1)
            if place in self._already_in:
                is_here = pc.and_(pc.equal(topic, place.topic), pc.equal(partition, place.partition))
                keep = pc.and_not(keep, pc.and_(is_here, pc.less(offset, self._already_in[place])))
        kept = batch.filter(keep)
        self.left_out += batch.num_rows - kept.num_rows
        return kept
