"""Is everything there? A table against the topic it was made from, partition by partition.

As long as the topic still has a range, its batches are read again and compared: no offset missing, none twice, none
that the topic does not have, and the same checksum over offsets, keys, values and times. What retention has taken from
the topic is compared with what the commits have noted, carried forward in the table's state: as many rows, the same
checksum, and every offset without a row explained when it was committed. The report says which part was which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from barnabas.client.wire import BrokerError, Client
from barnabas.client.wire.admin import ResourceType, describe_configs
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import ZERO_UUID, TopicPartition, uuid_text
from barnabas.spark.tables import checksum as checksums
from barnabas.spark.tables import runs
from barnabas.spark.tables.checksum import HASHED_COLUMNS, Checksum
from barnabas.spark.tables.errors import TableError
from barnabas.spark.tables.gaps import classify
from barnabas.spark.tables.intervals import Interval, Intervals
from barnabas.spark.tables.parquet_writer import offsets_of
from barnabas.spark.tables.readable import Readable, Rows
from barnabas.spark.tables.runs import Runs
from barnabas.spark.tables.schema import TRACKED, has_offsets
from barnabas.spark.tables.state import EXPLAINED, Gap
from barnabas.spark.tables.topic import Bounds, bounds_of, windows

STEP_OFFSETS = 4_000_000
"""So many are looked at in one go: their offsets are kept in memory, their contents are not."""

SHOWN = 5
"""Ranges that a message names one by one."""


class Progress(NamedTuple):
    partition: TopicPartition
    done: int
    total: int
    """Offsets."""


OnProgress: TypeAlias = Callable[[Progress], None]


@dataclass(slots=True)
class PartitionReport:
    partition: TopicPartition
    start: int
    end: int
    compared_from: int
    """Before it, the topic has nothing any more: there the table and its commits are all that was checked."""
    rows: int = 0
    topic_rows: int = 0
    """Of those that the topic still has, as a reader of committed records gets them."""
    missing: int = 0
    duplicates: int = 0
    extra: int = 0
    """Rows of which the topic has no record, nor can have had one."""
    compacted_since: int = 0
    """Rows whose records the topic has compacted away after they were committed."""
    gaps: dict[str, int] = field(default_factory=dict)
    """Offsets without a row, by kind; not those that are missing."""
    checksum: Checksum | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Report:
    table: str
    topic: str
    partitions: tuple[PartitionReport, ...]

    HEADER = ("partition", "offsets", "rows", "in topic", "missing", "twice", "extra", "gaps", "checksum", "result")

    @property
    def ok(self) -> bool:
        return all(item.ok for item in self.partitions)

    def rows(self) -> list[tuple[str, ...]]:
        """For display, below HEADER."""
        return [_row(item) for item in self.partitions]

    @property
    def problems(self) -> list[str]:
        return [f"{item.partition}: {problem}" for item in self.partitions for problem in item.problems]

    @property
    def notes(self) -> list[str]:
        return [f"{item.partition}: {note}" for item in self.partitions for note in item.notes]


def _row(item: PartitionReport) -> tuple[str, ...]:
    gaps = ", ".join(f"{count:,} {kind}" for kind, count in sorted(item.gaps.items())) or "none"
    numbers = (item.rows, item.topic_rows, item.missing, item.duplicates, item.extra)
    return (
        str(item.partition.partition),
        f"{item.start:,}–{item.end:,}",
        *(f"{number:,}" for number in numbers),
        gaps,
        f"{item.checksum.value:016x}" if item.checksum else "–",
        "ok" if item.ok else "; ".join(item.problems),
    )


def verify(
    table: Readable,
    client: Client | None,
    topic: str,
    ranges: Mapping[int, tuple[int, int]] | None = None,
    *,
    whole_topic: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Checks what the table says it has of the topic, or the given ranges (start and end by partition).

    ``whole_topic`` asks for more: everything that the topic holds now must be in the table. Without a client, and for
    a topic that is gone, only the table and its commits are checked. Raises TableError where rows carry no offsets.
    """
    if not has_offsets(table.schema()):
        raise TableError(f"the table {table.name} lacks one of the columns {', '.join(TRACKED)}: nothing to check by")
    bounds, id_problem = _bounds_of_topic(table, client, topic)
    state = table.state()
    covered = {key: found for key, found in state.total().items() if key.topic == topic}
    applications = sorted(state.applications(topic))
    wanted = _wanted(covered, bounds, ranges, topic, whole_topic)
    recorded = _recorded_gaps(table, topic)
    is_compacted = bool(bounds) and client is not None and _is_compacted(client, topic)
    reports = []
    for partition, (start, end) in sorted(wanted.items()):
        now = bounds.get(partition)
        check = _Check(table, client if now else None, partition, covered.get(partition, ()), is_compacted)
        report = check.run(start, end, now, recorded.get(partition, []), on_progress)
        report.problems += [id_problem] if id_problem else []
        if topic in state.recreated:
            report.notes.append(
                "the topic was created again: rows of the deleted topic are in the table with the same offsets"
            )
        if not (table.records_offsets or whole_topic or ranges):
            report.notes.append(
                "Parquet files do not record which offsets were read: nothing is said of records before the first row "
                "and after the last, unless the whole topic is asked for"
            )
        if len(applications) > 1:
            names = ", ".join(name or "one without applicationId" for name in applications)
            report.notes.append(f"several applications wrote rows ({names}): a record may have a row of each")
        reports.append(report)
    return Report(table.name, topic, tuple(reports))


def _bounds_of_topic(
    table: Readable, client: Client | None, topic: str
) -> tuple[dict[TopicPartition, Bounds], str | None]:
    if client is None:
        return {}, None
    try:
        info = client.topic(topic)
    except BrokerError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return {}, None
        raise
    known = table.state().topics.get(topic)
    now = uuid_text(info.topic_id)
    if known and info.topic_id != ZERO_UUID and known != now:
        return {}, f"the topic was deleted and created again: its id was {known} and is {now}"
    partitions = [TopicPartition(topic, number) for number in info.partitions]
    return {partition: bounds_of(client, partition) for partition in partitions}, None


def _is_compacted(client: Client, topic: str) -> bool:
    """Whether records may go while younger ones stay. A broker that does not say is not blamed for it."""
    try:
        found = describe_configs(client, ResourceType.TOPIC, [topic], keys=["cleanup.policy"])
    except BrokerError:
        return True
    return any("compact" in (item.value or "") for item in found.get(topic, ()))


def _wanted(
    covered: Mapping[TopicPartition, Intervals],
    bounds: Mapping[TopicPartition, Bounds],
    ranges: Mapping[int, tuple[int, int]] | None,
    topic: str,
    whole_topic: bool,
) -> dict[TopicPartition, tuple[int, int]]:
    if ranges is not None:
        return {TopicPartition(topic, number): found for number, found in ranges.items()}
    found = {partition: (items[0].start, items[-1].end) for partition, items in covered.items() if items}
    if whole_topic:
        for partition, (first, last) in bounds.items():
            start, end = found.get(partition, (first, last))
            found[partition] = min(start, first), max(end, last)
    return found


def _recorded_gaps(table: Readable, topic: str) -> dict[TopicPartition, list[Gap]]:
    found: dict[TopicPartition, list[Gap]] = {}
    for commit in table.commits():
        for item in commit.ranges:
            if item.partition.topic == topic:
                found.setdefault(item.partition, []).extend(item.gaps)
    return found


class _Piece(NamedTuple):
    """The table's rows between two offsets."""

    offsets: Runs
    rows: int
    checksum: Checksum


class _Check:
    """One partition, piece by piece."""

    def __init__(
        self,
        table: Readable,
        client: Client | None,
        partition: TopicPartition,
        intervals: Intervals,
        is_compacted: bool,
    ) -> None:
        self._table = table
        self._client = client
        self._partition = partition
        self._intervals = intervals
        self._is_compacted = is_compacted
        self._hashed = checksums.hashable_columns(table.schema())
        self._sums: dict[Interval, tuple[int, Checksum]] = {}
        self._missing: list[tuple[int, int]] = []
        self._extra: list[tuple[int, int]] = []
        self._unexplained: list[tuple[int, int]] = []

    def run(
        self, start: int, end: int, now: Bounds | None, recorded: list[Gap], on_progress: OnProgress | None
    ) -> PartitionReport:
        compared_from = end if now is None else min(max(start, now.log_start_offset), end)
        report = PartitionReport(self._partition, start, end, compared_from)
        report.checksum = Checksum(self._hashed, 0)
        for low, high in pairwise(self._cuts(start, end, compared_from)):
            try:
                piece = self._piece(low, high)
            except (OSError, pa.ArrowException) as error:
                report.problems.append(f"offsets {low:,} to {high:,} cannot be read from the table: {error}")
                continue
            self._count(report, piece, low, high)
            if low < compared_from:
                self._check_against_commits(report, piece, low, high, recorded)
            else:
                self._check_against_topic(report, piece, low, high)
            if on_progress is not None:
                on_progress(Progress(self._partition, high - start, end - start))
        self._check_sums(report, start, end)
        self._conclude(report, now)
        return report

    def _cuts(self, start: int, end: int, compared_from: int) -> list[int]:
        bounds = {bound for item in self._intervals for bound in (item.start, item.end)}
        cuts = {start, end, compared_from, *bounds, *range(start, end, STEP_OFFSETS)}
        return sorted(cut for cut in cuts if start <= cut <= end)

    def _piece(self, low: int, high: int, only: Runs | None = None) -> _Piece:
        columns = ["offset", *(HASHED_COLUMNS[letter] for letter in self._hashed)]
        parts = [np.zeros(0, np.int64)]
        checksum = Checksum(self._hashed, 0)
        for found in self._table.read(columns, Rows(*self._partition, low, high)):
            batch = found if only is None else found.filter(pa.array(runs.contains(only, offsets_of(found))))
            parts.append(offsets_of(batch))
            checksum = checksum.plus(checksums.of_rows(batch, self._hashed)) or checksum
        offsets = np.concatenate(parts)
        return _Piece(runs.of_offsets(offsets), len(offsets), checksum)

    def _count(self, report: PartitionReport, piece: _Piece, low: int, high: int) -> None:
        report.rows += piece.rows
        report.duplicates += piece.rows - piece.offsets.offset_count
        report.checksum = checksums.add(report.checksum, piece.checksum)
        for item in self._intervals:
            if item.start <= low and high <= item.end:
                rows, checksum = self._sums.get(item, (0, Checksum(self._hashed, 0)))
                self._sums[item] = rows + piece.rows, checksum.plus(piece.checksum) or checksum

    def _check_against_topic(self, report: PartitionReport, piece: _Piece, low: int, high: int) -> None:
        if self._client is None:
            return
        checksum = Checksum(self._hashed, 0)
        held = markers = runs.NOTHING
        reached = low
        for window in windows(self._client, self._partition, low, high):
            inside = runs.of_bounds([(window.start, window.end)])
            holes = runs.subtract(inside, piece.offsets)
            for gap in classify(holes, window):
                self._note_gap(report, gap)
            report.topic_rows += window.committed.offset_count
            held = runs.union([held, window.offsets])
            markers = runs.union([markers, window.control])
            reached = window.end
            if window.records is not None:
                there = runs.contains(piece.offsets, offsets_of(window.records))
                rows = window.records if there.all() else window.records.filter(pa.array(there))
                checksum = checksum.plus(checksums.of_rows(rows, self._hashed)) or checksum
        extra = runs.subtract(piece.offsets, held)
        self._note_extra(report, extra, runs.of_bounds([(low, reached)]), markers)
        if extra:
            piece = self._piece(low, high, only=held)
        if checksum != piece.checksum and piece.rows == piece.offsets.offset_count:
            report.problems.append(f"offsets {low:,} to {high:,} do not have the contents that the topic has")

    def _note_extra(self, report: PartitionReport, extra: Runs, known: Runs, markers: Runs) -> None:
        """A compacted topic lets records go that were there when they were committed: the commits vouch for them."""
        if self._is_compacted:
            gone = runs.subtract(runs.intersect(extra, known), markers)
            report.compacted_since += gone.offset_count
            extra = runs.subtract(extra, gone)
        self._extra += runs.bounds(extra)
        report.extra += extra.offset_count

    def _note_gap(self, report: PartitionReport, gap: Gap) -> None:
        count = gap.end - gap.start
        if gap.kind == "filtered":
            report.missing += count
            self._missing.append((gap.start, gap.end))
        else:
            report.gaps[gap.kind] = report.gaps.get(gap.kind, 0) + count

    def _check_against_commits(
        self, report: PartitionReport, piece: _Piece, low: int, high: int, recorded: list[Gap]
    ) -> None:
        """Holes are explained one by one where the commits are still listed, else by the sum that they left."""
        holes = runs.subtract(runs.of_bounds([(low, high)]), piece.offsets)
        for kind in sorted({gap.kind for gap in recorded}):
            known = runs.intersect(holes, runs.of_bounds((gap.start, gap.end) for gap in recorded if gap.kind == kind))
            if known and kind in EXPLAINED:
                report.gaps[kind] = report.gaps.get(kind, 0) + known.offset_count
                holes = runs.subtract(holes, known)
        if not holes:
            return
        if any(item.dense and item.start <= low and high <= item.end for item in self._intervals):
            report.gaps["explained"] = report.gaps.get("explained", 0) + holes.offset_count
            return
        self._unexplained += runs.bounds(holes)
        report.gaps["unknown"] = report.gaps.get("unknown", 0) + holes.offset_count

    def _check_sums(self, report: PartitionReport, start: int, end: int) -> None:
        """What the commits have noted, against what is in the table now."""
        for item in self._intervals:
            if item.start < start or item.end > end:
                continue
            rows, checksum = self._sums.get(item, (0, Checksum(self._hashed, 0)))
            place = f"offsets {item.start:,} to {item.end:,}"
            if rows != item.rows:
                report.problems.append(f"{place} have {rows:,} rows, but {item.rows:,} were committed")
            elif item.checksum is not None and item.checksum.columns == self._hashed and item.checksum != checksum:
                report.problems.append(f"{place} do not have the contents that were committed")

    def _conclude(self, report: PartitionReport, now: Bounds | None) -> None:
        if report.missing:
            report.problems.append(f"{report.missing:,} records of the topic are missing: {_shown(self._missing)}")
        if report.duplicates:
            report.problems.append(f"{report.duplicates:,} rows are there twice")
        if report.extra:
            report.problems.append(f"{report.extra:,} offsets are not in the topic: {_shown(self._extra)}")
        if self._unexplained:
            report.problems.append(f"offsets without a row and without a reason: {_shown(self._unexplained)}")
        if report.gaps.get("deleted"):
            report.problems.append(
                f"{report.gaps['deleted']:,} offsets were deleted from the topic before they were read"
            )
        if report.compacted_since:
            count = report.compacted_since
            report.notes.append(f"{count:,} records were compacted away in the topic since they were archived")
        if report.compared_from > report.start:
            why = "is not there to compare with" if now is None else f"begins at {now.log_start_offset:,}"
            what = f"{report.start:,} to {report.compared_from:,}"
            report.notes.append(f"the topic {why}: {what} were checked by the table and its commits alone")
        if len(self._hashed) < len(HASHED_COLUMNS):
            left_out = [name for letter, name in HASHED_COLUMNS.items() if letter not in self._hashed]
            report.notes.append(f"not compared, since the table has no such column of the topic: {', '.join(left_out)}")


def _shown(found: list[tuple[int, int]]) -> str:
    joined = runs.bounds(runs.of_bounds(found))
    texts = [f"{start:,}" if end == start + 1 else f"{start:,}–{end - 1:,}" for start, end in joined[:SHOWN]]
    more = len(joined) - SHOWN
    return ", ".join(texts) + (f" and {more:,} more" if more > 0 else "")
