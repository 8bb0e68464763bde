"""What one commit says: pure decisions from the table's state and the files of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.model.ids import TopicPartition
from barnabas.spark.tables import checksum as checksums
from barnabas.spark.tables import runs
from barnabas.spark.tables.checksum import Checksum
from barnabas.spark.tables.errors import AnotherApplication, AnotherCheckpoint
from barnabas.spark.tables.files import DataFile
from barnabas.spark.tables.intervals import Interval, end_before, overlaps
from barnabas.spark.tables.runs import Runs
from barnabas.spark.tables.state import UNNAMED, Gap, Range, Scope, TableState, Writer

MAX_GAPS = 1000
"""Of one range that are noted one by one; all are counted."""

Explain: TypeAlias = Callable[[TopicPartition, Sequence[tuple[int, int]]], Sequence[Gap]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Files that are to become part of a table, all or none."""

    writer: str
    application: str
    number: int | None
    """None where nothing numbers them: then the writer never comes again."""
    files: tuple[DataFile, ...]
    is_stream: bool
    """Whether a writer's ranges go on where its last one ended."""
    tracked: bool
    scope: Scope = UNNAMED
    skips_all: bool = False
    """Leave out rows that any application has put into the table (offsetScope=table)."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class Held(NamedTuple):
    """What a batch has of one partition, in all its files."""

    runs: Runs
    rows: int
    checksum: Checksum | None


def held_by(files: Iterable[DataFile]) -> dict[TopicPartition, Held]:
    parts: dict[TopicPartition, list[Held]] = {}
    for file in files:
        for item in file.ranges:
            parts.setdefault(item.partition, []).append(Held(item.runs, item.rows, item.checksum))
    return {partition: _put_together(found) for partition, found in sorted(parts.items())}


def _put_together(parts: list[Held]) -> Held:
    checksum = parts[0].checksum
    for part in parts[1:]:
        checksum = checksums.add(checksum, part.checksum)
    return Held(runs.union(part.runs for part in parts), sum(part.rows for part in parts), checksum)


def is_replay(state: TableState, batch: Batch) -> bool:
    return batch.number is not None and state.has(batch.writer, batch.number)


def check_writer(state: TableState, batch: Batch) -> None:
    """Without offsets only numbers of batches tell what is there, and those of two checkpoints say nothing of each
    other: to skip would lose rows, to write would double them. Raises AnotherCheckpoint."""
    if batch.tracked or batch.number is None:
        return
    for name, writer in state.writers.items():
        if name != batch.writer and writer.application == batch.application:
            raise AnotherCheckpoint(
                f"the application {batch.application} wrote to the table with another checkpoint, up to batch "
                f"{writer.batch}, and the rows carry no offsets to tell which are there already: go on with that "
                "checkpoint, or choose another applicationId to append all rows that come"
            )


class Overlap(NamedTuple):
    """Where other writers of one scope have been in the range of a batch."""

    partition: TopicPartition
    scope: Scope
    intervals: Sequence[Interval]


def overlapped(state: TableState, batch: Batch) -> list[Overlap]:
    return [
        Overlap(partition, scope, hits)
        for partition, held in held_by(batch.files).items()
        for scope, coverage in state.of_others(batch.writer)
        if (hits := overlaps(coverage.get(partition, ()), held.runs.start, held.runs.end))
    ]


def is_skipped(scope: Scope, batch_scope: Scope, *, skips_all: bool) -> bool:
    """Whether rows that a scope has put into the table are left out of a batch."""
    return skips_all or scope.application == batch_scope.application


def is_refused(scope: Scope, batch: Batch) -> bool:
    """Whether rows of a batch must not have offsets that a scope has put into the table: nobody said what is meant."""
    is_apart = scope.is_apart or batch.scope.is_apart
    return not is_apart and not is_skipped(scope, batch.scope, skips_all=batch.skips_all)


def another_application(batch: Batch, scope: Scope, partition: TopicPartition, common: Runs) -> AnotherApplication:
    mine, other = (
        f"the application {name}" if name else "a query without applicationId"
        for name in (batch.scope.application, scope.application)
    )
    return AnotherApplication(
        f"rows of {partition} at offsets {common.start} to {common.end - 1} are in the table already, written by "
        f"{other}, and come again from {mine}. Nothing was committed. If they are the same rows, go on with the "
        "applicationId that wrote them, or set offsetScope to table to leave them out. If they are other rows made "
        "from the same records, set applicationId, and offsetScope to application to keep both"
    )


def ranges_of(state: TableState, batch: Batch, explain: Explain, topic_ids: Mapping[str, str]) -> list[Range]:
    return [
        _range(state, batch, partition, held, explain, topic_ids.get(partition.topic))
        for partition, held in held_by(batch.files).items()
    ]


def _range(
    state: TableState, batch: Batch, partition: TopicPartition, held: Held, explain: Explain, topic_id: str | None
) -> Range:
    start = _start(state, batch, partition, held.runs.start)
    holes = runs.holes(held.runs, start)
    gaps = sorted(explain(partition, holes)) if holes else []
    missing: dict[str, int] = {}
    for gap in gaps:
        missing[gap.kind] = missing.get(gap.kind, 0) + gap.end - gap.start
    return Range(
        partition=partition,
        start=start,
        end=held.runs.end,
        rows=held.rows,
        offsets=held.runs.offset_count,
        checksum=held.checksum,
        gaps=tuple(gaps[:MAX_GAPS]),
        missing=missing,
        topic_id=topic_id,
    )


def _start(state: TableState, batch: Batch, partition: TopicPartition, first: int) -> int:
    """A stream's range begins where the table ended before it: what lies between was read and brought no row."""
    if not batch.is_stream:
        return first
    found = [
        coverage
        for owner, coverage in state.coverage.items()
        if owner == batch.writer or is_skipped(state.scope_of(owner), batch.scope, skips_all=batch.skips_all)
    ]
    ends = [end_before(coverage.get(partition, ()), first) for coverage in found]
    return max((end for end in ends if end is not None), default=first)


def state_after(state: TableState, batch: Batch, ranges: Iterable[Range]) -> TableState:
    writer = None if batch.number is None else Writer(application=batch.application, batch=batch.number)
    return state.after(batch.writer, writer, ranges, batch.scope)
