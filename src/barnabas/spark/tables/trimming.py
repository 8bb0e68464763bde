"""Rows taken out of files that are not committed yet, because another writer has brought them: rare, on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.model.ids import TopicPartition
from barnabas.spark.tables import runs
from barnabas.spark.tables.files import DataFile, Place, open_place
from barnabas.spark.tables.intervals import Interval
from barnabas.spark.tables.partitioning import IDENTITY, PartitionField
from barnabas.spark.tables.runs import Runs
from barnabas.spark.tables.writing import TaskName, WriteJob, discard_files, write_files

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
    for field, value in zip(fields, values, strict=True):
        if field.transform == IDENTITY and batch.schema.get_field_index(field.column) < 0:
            kind = schema.field(field.column).type
            column = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows).cast(kind)
            batch = batch.append_column(field.column, column)
    return batch
