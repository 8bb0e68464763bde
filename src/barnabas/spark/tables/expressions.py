"""Which rows are read, as pyarrow says it, and which files cannot have any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.tables.files import DataFile
from barnabas.spark.tables.partitioning import IDENTITY, PartitionField


class Rows(NamedTuple):
    """Which rows are read; what is None is not asked about."""

    topic: str | None = None
    partition: int | None = None
    start: int | None = None
    """First offset."""
    end: int | None = None
    """Offset behind the last."""
    since_us: int | None = None
    until_us: int | None = None
    """Of the column timestamp, microseconds since 1970; exclusive."""


ALL_ROWS = Rows()


def filter_of(rows: Rows) -> pc.Expression | None:
    """For pyarrow's datasets."""
    parts: list[Any] = []
    if rows.topic is not None:
        parts.append(pc.field("topic") == rows.topic)
    if rows.partition is not None:
        parts.append(pc.field("partition") == rows.partition)
    if rows.start is not None:
        parts.append(pc.field("offset") >= rows.start)
    if rows.end is not None:
        parts.append(pc.field("offset") < rows.end)
    for bound, is_start in ((rows.since_us, True), (rows.until_us, False)):
        if bound is not None:
            moment = pa.scalar(bound, pa.timestamp("us", tz="UTC"))
            parts.append(pc.field("timestamp") >= moment if is_start else pc.field("timestamp") < moment)
    found = None
    for part in parts:
        found = part if found is None else found & part
    return found


def is_outside(file: DataFile, rows: Rows, fields: Sequence[PartitionField]) -> bool:
    """Whether the bounds and the folder of a file rule it out."""
    folders = {
        item.column: value for item, value in zip(fields, file.partition, strict=True) if item.transform == IDENTITY
    }
    for name, wanted in (("topic", rows.topic), ("partition", rows.partition)):
        if wanted is None:
            continue
        if name in folders:
            if folders[name] != str(wanted):
                return True
        elif not _may_lie_in(file, name, wanted, wanted):
            return True
    last = None if rows.end is None else rows.end - 1
    return not _may_lie_in(file, "offset", rows.start, last)


def _may_lie_in(file: DataFile, name: str, low: Any, high: Any) -> bool:
    bounds = file.statistics.get(name)
    if bounds is None or bounds[0] is None:
        return True
    return not ((high is not None and bounds[0] > high) or (low is not None and bounds[1] < low))
