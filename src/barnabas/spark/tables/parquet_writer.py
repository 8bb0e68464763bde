"""What an executor does: RecordBatches in, Parquet files out, and of each file the offsets that are in it.

Rows that another writer has put into the table already are left out on the way. No Python object per row anywhere.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.model.ids import TopicPartition
from barnabas.spark.tables import checksum as checksums
from barnabas.spark.tables import runs
from barnabas.spark.tables.files import DataFile, FileRange, Place, open_place, statistics_of
from barnabas.spark.tables.intervals import Coverage, Interval, dense_only, within
from barnabas.spark.tables.partitioning import IDENTITY, PartitionField, folder, split
from barnabas.spark.tables.runs import Runs
from barnabas.spark.tables.schema import conform

ROW_GROUP_BYTES = 64 * 1024 * 1024
ROW_GROUP_ROWS = 1_000_000
MAX_OPEN_FILES = 128
MAX_BUFFERED_BYTES = 256 * 1024 * 1024

BY_PARTITION = (PartitionField("topic"), PartitionField("partition"))


class TaskName(NamedTuple):
    """Whose files these are."""

    writer: str
    batch: int
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """What the driver tells the executors."""

    location: str
    """Path or URI of the table."""
    folder: str
    """In it, where data files go: empty, or with a slash at its end."""
    schema: pa.Schema
    fields: tuple[PartitionField, ...]
    keeps_columns: bool
    """Whether the columns of partitions stand in the files, too (Iceberg)."""
    compression: str
    target_bytes: int
    tracked: bool
    hashed: str
    """The columns of checksums."""
    covered: dict[str, Coverage] = field(default_factory=dict)
    """What is in the table, by writer: of the others' rows none is written again."""

    @property
    def file_schema(self) -> pa.Schema:
        dropped = () if self.keeps_columns else [item.column for item in self.fields if item.transform == IDENTITY]
        return pa.schema([item for item in self.schema if item.name not in dropped])


class Written(NamedTuple):
    files: tuple[DataFile, ...]
    skipped: int
    """Rows that were there already."""


def write_files(job: WriteJob, batches: Iterable[pa.RecordBatch], name: TaskName) -> Written:
    """All rows in files, closed and whole. On an error nothing is left behind."""
    task = _Task(job, name)
    try:
        for batch in batches:
            task.add(conform(batch, job.schema))
        return Written(tuple(task.finish()), task.skipped)
    except BaseException:
        task.discard()
        raise


def grouped(batch: pa.RecordBatch, tracked: bool) -> Iterator[tuple[TopicPartition | None, pa.RecordBatch]]:
    """The rows by the partition they come from; None where that is not known."""
    if not tracked:
        yield None, batch
        return
    for (topic, partition), rows in split(batch, BY_PARTITION):
        if topic is None or partition is None or rows.column("offset").null_count:
            yield None, rows
        else:
            yield TopicPartition(topic, int(partition)), rows


def offsets_of(rows: pa.RecordBatch) -> runs.Offsets:
    found: runs.Offsets = rows.column("offset").to_numpy(zero_copy_only=False)
    return found


class RangeCollector:
    """Adds up what a file has of each partition."""

    __slots__ = ("_found", "_hashed")

    def __init__(self, hashed: str) -> None:
        self._hashed = hashed
        self._found: dict[TopicPartition, tuple[list[runs.Runs], int, checksums.Checksum]] = {}

    def add(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        parts, count, checksum = self._found.get(partition, ([], 0, checksums.Checksum(self._hashed, 0)))
        parts.append(runs.of_offsets(offsets_of(rows)))
        total = checksum.plus(checksums.of_rows(rows, self._hashed))
        self._found[partition] = parts, count + rows.num_rows, total or checksum

    def ranges(self) -> tuple[FileRange, ...]:
        return tuple(
            FileRange(partition, runs.pack(runs.union(parts)), count, checksum)
            for partition, (parts, count, checksum) in self._found.items()
        )


@dataclass(slots=True)
class _OpenFile:
    path: str
    values: tuple[str | None, ...]
    ranges: RangeCollector
    buffered: list[pa.RecordBatch] = field(default_factory=list)
    buffered_bytes: int = 0
    buffered_rows: int = 0
    rows: int = 0
    writer: Any = None
    stream: Any = None
    metadata: list[Any] = field(default_factory=list)


class _Task:
    def __init__(self, job: WriteJob, name: TaskName) -> None:
        self.skipped = 0
        self._job = job
        self._name = name
        self._place = open_place(job.location)
        self._file_schema = job.file_schema
        self._open: OrderedDict[tuple[str | None, ...], _OpenFile] = OrderedDict()
        self._done: list[DataFile] = []
        self._attempt = uuid.uuid4().hex[:16]
        self._count = 0
        self._buffered_bytes = 0
        self._dense: dict[TopicPartition, list[list[Interval]]] = {}
        for writer, coverage in job.covered.items():
            for partition, intervals in coverage.items() if writer != name.writer else ():
                self._dense.setdefault(partition, []).append(dense_only(intervals))

    def add(self, batch: pa.RecordBatch) -> None:
        for partition, rows in grouped(batch, self._job.tracked):
            fresh = self._without_covered(partition, rows)
            if not fresh.num_rows:
                continue
            for values, part in split(fresh, self._job.fields):
                self._append(values, partition, part)

    def _without_covered(self, partition: TopicPartition | None, rows: pa.RecordBatch) -> pa.RecordBatch:
        if partition is None or partition not in self._dense:
            return rows
        offsets = offsets_of(rows)
        covered = np.zeros(len(offsets), bool)
        for intervals in self._dense[partition]:
            covered |= within(intervals, offsets)
        count = int(covered.sum())
        self.skipped += count
        return rows.filter(pa.array(~covered)) if count else rows

    def _append(self, values: tuple[str | None, ...], partition: TopicPartition | None, rows: pa.RecordBatch) -> None:
        file = self._open.get(values) or self._new_file(values)
        self._open.move_to_end(values)
        if partition is not None:
            file.ranges.add(partition, rows)
        rows = rows.select(self._file_schema.names)
        size = rows.nbytes
        file.buffered.append(rows)
        file.buffered_bytes += size
        file.buffered_rows += rows.num_rows
        self._buffered_bytes += size
        if file.buffered_bytes >= ROW_GROUP_BYTES or file.buffered_rows >= ROW_GROUP_ROWS:
            self._flush(file)
        elif self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._flush(max(self._open.values(), key=lambda item: item.buffered_bytes))
        if file.stream is not None and file.stream.tell() >= self._job.target_bytes:
            self._close(values)

    def _new_file(self, values: tuple[str | None, ...]) -> _OpenFile:
        if len(self._open) >= MAX_OPEN_FILES:
            self._close(next(iter(self._open)))
        name = f"part-{self._name.batch:08d}-{self._name.task:05d}-{self._attempt}-{self._count:03d}.parquet"
        self._count += 1
        path = f"{self._job.folder}{folder(self._job.fields, values)}{name}"
        file = self._open[values] = _OpenFile(path, values, RangeCollector(self._job.hashed))
        return file

    def _flush(self, file: _OpenFile) -> None:
        if not file.buffered:
            return
        if file.writer is None:
            target = self._place.path(file.path)
            self._place.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            file.stream = self._place.filesystem.open_output_stream(target)
            settings = parquet_settings(self._file_schema, self._job.compression)
            file.writer = pq.ParquetWriter(file.stream, self._file_schema, metadata_collector=file.metadata, **settings)
        table = pa.Table.from_batches(file.buffered)
        file.writer.write_table(table, row_group_size=max(table.num_rows, 1))
        file.rows += table.num_rows
        self._buffered_bytes -= file.buffered_bytes
        file.buffered, file.buffered_bytes, file.buffered_rows = [], 0, 0

    def _close(self, values: tuple[str | None, ...]) -> None:
        file = self._open[values]
        self._flush(file)
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        del self._open[values]
        self._done.append(
            DataFile(
                path=file.path,
                rows=file.rows,
                bytes=size,
                partition=file.values,
                statistics=statistics_of(file.metadata[0], self._file_schema),
                ranges=file.ranges.ranges(),
            )
        )

    def finish(self) -> list[DataFile]:
        for values in list(self._open):
            self._close(values)
        return self._done

    def discard(self) -> None:
        """Best effort: what is left all the same is no part of the table."""
        for file in self._open.values():
            if file.stream is not None:
                file.stream.close()
        discard_files(self._place, [file.path for file in self._done])
        discard_files(self._place, [file.path for file in self._open.values()])


def discard_files(place: Place, paths: Iterable[str]) -> None:
    for path in paths:
        try:
            place.delete([path])
        except OSError:
            continue


def parquet_settings(schema: pa.Schema, compression: str) -> dict[str, Any]:
    """Numbers that go up are stored as steps; a dictionary is tried where values are likely to come again."""
    steps = [name for name in ("offset", "timestamp") if _is_long(schema, name)]
    unique = {*steps, "key", "value"}
    return {
        "compression": compression,
        "use_dictionary": [item.name for item in schema if item.name not in unique],
        "column_encoding": dict.fromkeys(steps, "DELTA_BINARY_PACKED") or None,
        "write_statistics": [item.name for item in schema if has_statistics(item.type)],
    }


def has_statistics(kind: pa.DataType) -> bool:
    """Bounds of bytes help no reader, and cost a comparison for every value."""
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _is_long(schema: pa.Schema, name: str) -> bool:
    index = schema.get_field_index(name)
    kind = schema.field(index).type if index >= 0 else pa.null()
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


ANOTHER = "another"


def without_offsets(
    job: WriteJob, files: Sequence[DataFile], covered: Mapping[TopicPartition, Runs], name: TaskName
) -> list[DataFile]:
    """The files, those with covered offsets written anew without them, or gone where nothing is left."""
    kept: list[DataFile] = []
    dropped: list[DataFile] = []
    for file in files:
        hits = {
            item.partition: runs.intersect(item.runs, covered[item.partition])
            for item in file.ranges
            if item.partition in covered
        }
        hits = {partition: found for partition, found in hits.items() if found}
        if not hits:
            kept.append(file)
            continue
        dropped.append(file)
        if not _is_all_covered(file, hits):
            kept += _rewritten(job, file, hits, name)
    discard_files(open_place(job.location), [file.path for file in dropped])
    return kept


def _is_all_covered(file: DataFile, hits: Mapping[TopicPartition, Runs]) -> bool:
    rows = sum(item.rows for item in file.ranges)
    return rows == file.rows and all(
        item.partition in hits and not runs.subtract(item.runs, hits[item.partition]) for item in file.ranges
    )


def _rewritten(
    job: WriteJob, file: DataFile, hits: Mapping[TopicPartition, Runs], name: TaskName
) -> tuple[DataFile, ...]:
    coverage = {
        partition: tuple(Interval(start, end, 0, True, None) for start, end in runs.bounds(found))
        for partition, found in hits.items()
    }
    job = replace(job, covered={ANOTHER: coverage})
    return write_files(job, rows_of(open_place(job.location), file, job), name).files


def rows_of(place: Place, file: DataFile, job: WriteJob) -> Iterator[pa.RecordBatch]:
    """A file's rows with all columns of the table: those that are folders, too."""
    with place.filesystem.open_input_file(place.path(file.path)) as stream:
        for batch in pq.ParquetFile(stream).iter_batches():
            yield with_folders(batch, job.schema, job.fields, file.partition)


def with_folders(
    batch: pa.RecordBatch, schema: pa.Schema, fields: Sequence[PartitionField], values: Sequence[str | None]
) -> pa.RecordBatch:
    for item, value in zip(fields, values, strict=True):
        if item.transform == IDENTITY and batch.schema.get_field_index(item.column) < 0:
            kind = schema.field(item.column).type
            column = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows).cast(kind)
            batch = batch.append_column(item.column, column)
    return batch
