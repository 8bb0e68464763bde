"""Which rows of a table are read, as a filter of pyarrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.model.ids import TopicPartition
from barnabas.spark.tables.intervals import Interval
from barnabas.spark.tables.parquet_writer import grouped, offsets_of
from barnabas.spark.tables.schema import TRACKED, has_offsets
from barnabas.spark.tables.state import NOBODY, Range, TableState


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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def conditions_of(rows: Rows) -> list[tuple[str, str, Any]]:
    """Column, operator and value; times as datetimes."""
    since, until = (None if bound is None else _EPOCH + timedelta(microseconds=bound) for bound in rows[4:])
    found = [
        ("topic", "==", rows.topic),
        ("partition", "==", rows.partition),
        ("offset", ">=", rows.start),
        ("offset", "<", rows.end),
        ("timestamp", ">=", since),
        ("timestamp", "<", until),
    ]
    return [each for each in found if each[2] is not None]


def filter_of(rows: Rows) -> pc.Expression | None:
    """For pyarrow's datasets."""
    found = conditions_of(rows)
    return pq.filters_to_expression(found) if found else None


class CommitInfo(NamedTuple):
    version: str
    timestamp_ms: int
    operation: str
    application: str | None
    batch: int | None
    rows: int | None
    ranges: tuple[Range, ...]


class Readable(ABC):
    records_offsets = True
    """Whether commits record the offsets that they hold."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For messages."""

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def schema(self) -> pa.Schema:
        """As it is now, without the columns that partitioning adds."""

    @abstractmethod
    def state(self) -> TableState:
        """What its commits have recorded, or what its rows tell."""

    @abstractmethod
    def read(self, columns: Sequence[str], rows: Rows = ALL_ROWS) -> Iterator[pa.RecordBatch]:
        """Rows as they are now."""

    @abstractmethod
    def commits(self) -> list[CommitInfo]:
        """The newest first, as far back as the format remembers."""

    def close(self) -> None:
        """Closes connections."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rebuilt_state(self) -> TableState:
        """From the rows alone: of each partition the first and the last offset, and how many rows there are."""
        if not has_offsets(self.schema()):
            return TableState()
        found: dict[TopicPartition, tuple[Interval, ...]] = {}
        for batch in self.read(TRACKED):
            for partition, rows in grouped(batch, True):
                if partition is None or not rows.num_rows:
                    continue
                offsets = offsets_of(rows)
                low, high, count = int(offsets.min()), int(offsets.max()) + 1, len(offsets)
                if partition in found:
                    known = found[partition][0]
                    low, high, count = min(low, known.start), max(high, known.end), count + known.rows
                found[partition] = (Interval(low, high, count, False, None),)
        return TableState(coverage={NOBODY: found} if found else {})
