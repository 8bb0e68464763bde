"""Which rows of a table are read, as a filter of pyarrow."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


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
