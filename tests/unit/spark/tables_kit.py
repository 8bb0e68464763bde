"""Rows and tables for the tests of the table room."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

from barnabas.client.arrow.columns import arrow_schema
from barnabas.spark.tables.base import Outcome, Table
from barnabas.spark.tables.commit import Batch
from barnabas.spark.tables.formats import open_table
from barnabas.spark.tables.gaps import Topics
from barnabas.spark.tables.parquet_writer import TaskName, WriteJob, write_files
from barnabas.spark.tables.readable import Rows
from barnabas.spark.tables.schema import for_format

FORMATS = ("delta", "iceberg")
DAY_US = 24 * 3600 * 1_000_000
TIME_US = 1_700_000_000_000_000
NO_BROKER = Topics({})


class Crash(BaseException):
    """Stands for kill -9: nobody catches it."""


def rows(offsets: Iterable[int], *, topic: str = "orders", partition: int = 0, day: int = 0) -> pa.RecordBatch:
    """As the source gives them: key, value and time follow from the offset."""
    numbers = list(offsets)
    size = len(numbers)
    columns = [
        pa.array([None if number % 7 == 0 else b"key-%d" % number for number in numbers], pa.binary()),
        pa.array([b"value-%d" % number for number in numbers], pa.binary()),
        pa.array([topic] * size, pa.string()),
        pa.array([partition] * size, pa.int32()),
        pa.array(numbers, pa.int64()),
        pa.array([TIME_US + day * DAY_US + number * 1000 for number in numbers], pa.timestamp("us", tz="UTC")),
        pa.array([0] * size, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(False))


def settings(table_format: str, path: Path, **more: str) -> dict[str, str]:
    found = {"tableFormat": table_format, "path": str(path / "table"), **more}
    return found | ({"table": "shop.orders"} if table_format == "iceberg" else {})


@contextmanager
def opened(table_format: str, path: Path, **more: str) -> Iterator[Table]:
    with open_table(settings(table_format, path, **more)) as table:
        yield table


@contextmanager
def made(table_format: str, path: Path, schema: pa.Schema | None = None, **more: str) -> Iterator[Table]:
    with opened(table_format, path, **more) as table:
        table.prepare(for_format(schema or arrow_schema(False), table_format))
        table.state()
        yield table


def job_of(table: Table, schema: pa.Schema | None = None) -> WriteJob:
    return table.job(for_format(schema or arrow_schema(False), table.format), table.state())


def written(
    table: Table,
    batches: Sequence[pa.RecordBatch],
    *,
    writer: str = "q",
    number: int | None = 0,
    job: WriteJob | None = None,
    application: str | None = None,
    offset_scope: str = "",
) -> Batch:
    """A batch as the executors leave it: one task per RecordBatch."""
    with_options(table, application_id=application, offset_scope=offset_scope)
    job = job or job_of(table, batches[0].schema if batches else None)
    files = [
        file
        for task, batch in enumerate(batches)
        for file in write_files(job, [batch], TaskName(writer, number or 0, task)).files
    ]
    return Batch(
        writer=writer,
        application=application or writer,
        number=number,
        files=tuple(files),
        is_stream=number is not None,
        tracked=job.tracked,
        scope=table.options.scope,
        skips_all=offset_scope == "table",
    )


def commit(table: Table, batches: Sequence[pa.RecordBatch], *, topics: Topics = NO_BROKER, **named: Any) -> Outcome:
    return table.commit(written(table, batches, **named), topics)


def offsets_in(table: Table, **where: Any) -> list[int]:
    """All offsets in the table, sorted, those twice twice."""
    return sorted(value for batch in table.read(["offset"], Rows(**where)) for value in batch.column(0).to_pylist())


def crash_at(table: Table, name: str, count: int = 1) -> None:
    """Stops at the ``count``-th time that the step is reached."""
    left = [count]

    def step(reached: str) -> None:
        if reached == name:
            left[0] -= 1
            if left[0] == 0:
                raise Crash(name)

    table.step = step


def age_files(path: Path) -> None:
    """Data files look as if they were written long ago."""
    for file in path.rglob("*.parquet"):
        os.utime(file, (1, 1))


def with_options(table: Table, **changed: Any) -> None:
    table.options = replace(table.options, **changed)


def read_by_others(table: Table, path: Path) -> dict[str, list[int]]:
    """The offsets as each reader finds them that knows nothing of this room."""
    found: dict[str, list[int]] = {}
    folder = str(path / "table")
    if table.format == "delta":
        other = deltalake.DeltaTable(folder)
        found["deltalake"] = other.to_pyarrow_table()["offset"].to_pylist()
        files = other.file_uris()
    else:
        uri = f"sqlite:///{folder}/catalog.db"
        with load_catalog("default", type="sql", uri=uri, warehouse=f"file://{folder}") as catalog:
            scan = catalog.load_table("shop.orders").scan()
            found["pyiceberg"] = scan.to_arrow()["offset"].to_pylist()
            files = [task.file.file_path.removeprefix("file://") for task in scan.plan_files()]
    if files:
        parts = [pq.ParquetFile(file).read(["offset"]) for file in files]
        found["pyarrow"] = pa.concat_tables(parts)["offset"].to_pylist()
        found["duckdb"] = _by_duckdb(files)
    return {name: sorted(offsets) for name, offsets in found.items()}


def _by_duckdb(files: list[str]) -> list[int]:
    return [row[0] for row in duckdb.read_parquet(files).select('"offset"').fetchall()]
