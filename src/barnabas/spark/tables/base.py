"""A table as the sink, the jobs and ``verify`` see it, whatever its format.

Theory of operation. A commit is a loop: look at the table, decide, and put files and the new state into it in one
atomic step that fails where anybody else has committed since the look (``Conflict``); then look again. Everything that
makes a batch count once follows from that step being atomic, and from the state being part of it. Killed before the
step, there are files that no one refers to; killed after it, the batch is found to be there when it comes again.
"""

from __future__ import annotations

import random
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.model.ids import TopicPartition
from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables import checksum as checksums
from barnabas.spark.tables import runs
from barnabas.spark.tables.commit import (
    Batch,
    Explain,
    Overlap,
    another_application,
    check_writer,
    held_by,
    is_refused,
    is_replay,
    is_skipped,
    overlapped,
    ranges_of,
    state_after,
)
from barnabas.spark.tables.errors import Conflict, FilesLost, TableError, TooManyConflicts, TopicRecreated
from barnabas.spark.tables.files import DataFile, Place, check_writable, open_place
from barnabas.spark.tables.gaps import Topics, without_recreated
from barnabas.spark.tables.intervals import Coverage, Interval
from barnabas.spark.tables.options import TableOptions
from barnabas.spark.tables.parquet_writer import TaskName, WriteJob, discard_files, offsets_of, without_offsets
from barnabas.spark.tables.partitioning import PartitionField, check_fields
from barnabas.spark.tables.readable import Readable, Rows
from barnabas.spark.tables.runs import Runs
from barnabas.spark.tables.schema import TRACKED, has_offsets, merge
from barnabas.spark.tables.state import Gap, Range, TableState

MAX_ATTEMPTS = 50
MAX_BACKOFF_S = 1.0

REWRITING_TASK = 99_999
"""In the names of files that the driver wrote."""


class Snapshot(NamedTuple):
    state: TableState
    token: Any
    """What the format needs to see whether anybody committed since."""


class Compacted(NamedTuple):
    files_before: int
    files_after: int


class Expired(NamedTuple):
    snapshots: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    status: str
    """committed; replayed: the batch was there already; covered: its rows were; empty."""
    rows: int = 0
    trimmed: int = 0
    """Rows that another writer had brought in the meantime."""
    ranges: tuple[Range, ...] = ()
    commits: int = 0
    """How many the table has had, this one included."""


def no_step(_name: str) -> None:
    return


class Table(Readable):
    """One table, opened. Not for several threads."""

    format: str
    folder = ""
    keeps_columns = False

    def __init__(self, options: TableOptions) -> None:
        self.options = options
        self.step: Callable[[str], None] = no_step
        """Called between the steps of a commit: tests stop it there."""

    # What a format has to say

    @property
    @abstractmethod
    def location(self) -> str:
        """Path or URI of the folder with the data."""

    @abstractmethod
    def create(self, schema: pa.Schema, fields: tuple[PartitionField, ...]) -> None:
        """Makes an empty table; it is as good if somebody else has just made it."""

    @abstractmethod
    def add_columns(self, merged: pa.Schema) -> None:
        """Gives the table the columns at the schema's end that it does not have. Raises Conflict."""

    @abstractmethod
    def fields(self) -> tuple[PartitionField, ...]:
        """How it is partitioned."""

    @abstractmethod
    def load(self) -> Snapshot:
        """The state as it is now, with what a commit on top of it needs."""

    @abstractmethod
    def append(self, snapshot: Snapshot, batch: Batch, ranges: Sequence[Range], state: TableState) -> None:
        """The atomic step. Raises Conflict where the snapshot is old."""

    @abstractmethod
    def files(self) -> list[str]:
        """Paths or URIs of the Parquet files that are the table now."""

    @abstractmethod
    def compact(self) -> Compacted:
        """Small files put together. Rows, state and coverage stay. Raises Conflict where others were faster."""

    @abstractmethod
    def expire(self) -> Expired:
        """Old snapshots and what only they refer to go; so do files that no commit ever took."""

    def tidy(self) -> None:
        """What has to be done more often than maintenance. Raises Conflict where others were faster."""
        return

    # What is the same for all

    def prepare(self, rows: pa.Schema) -> None:
        """Creates the table, or adds the columns it does not have. Raises TableError before any row is written."""
        self._check_fields(rows)
        if self.options.path:
            check_writable(open_place(self.options.path), self.name)
        if not self.exists():
            self.create(rows, self.options.partition_by or ())
        self._check_partitioning()
        for _ in range(MAX_ATTEMPTS):
            known = self.schema()
            merged = merge(known, rows, add_columns=self.options.merge_schema, name=self.name)
            if len(merged) == len(known):
                return
            with suppress(Conflict):
                self.add_columns(merged)
        raise TooManyConflicts(f"the table {self.name} could not be given its new columns")

    def _check_fields(self, rows: pa.Schema) -> None:
        try:
            check_fields(self.options.partition_by or (), rows)
        except ValueError as error:
            raise SparkOptionError(str(error)) from None

    def _check_partitioning(self) -> None:
        wanted, now = self.options.partition_by, self.fields()
        if wanted is not None and wanted != now:
            is_now = ",".join(map(str, now)) or "nothing"
            asked = ",".join(map(str, wanted))
            raise SparkOptionError(f"partitionBy is {asked!r}, but the table {self.name} is partitioned by {is_now}")

    def state(self) -> TableState:
        return self.load().state

    @property
    def place(self) -> Place:
        return open_place(self.location)

    def is_tracked(self, schema: pa.Schema) -> bool:
        wanted = self.options.track_offsets
        if wanted and not has_offsets(schema):
            raise TableError(f"trackOffsets is true, but the rows lack one of the columns {', '.join(TRACKED)}")
        return has_offsets(schema) if wanted is None else wanted

    def job(self, rows: pa.Schema, state: TableState | None = None) -> WriteJob:
        """What executors are to do with rows of such a schema."""
        tracked = self.is_tracked(rows)
        return WriteJob(
            location=self.location,
            folder=self.folder,
            schema=self.schema(),
            fields=self.fields(),
            keeps_columns=self.keeps_columns,
            compression=self.options.compression,
            target_bytes=self.options.target_bytes,
            tracked=tracked,
            hashed=checksums.hashable_columns(rows) if tracked else "",
            covered=self._skipped_coverage(state) if state is not None and tracked else {},
        )

    def current_state(self, state: TableState, topic_ids: Mapping[str, str]) -> TableState:
        """The state as it counts for the topics that there are now. Raises TopicRecreated."""
        return without_recreated(state, topic_ids, self.name, fail=self.options.fail_on_data_loss)

    def _skipped_coverage(self, state: TableState) -> dict[str, Coverage]:
        skips_all = self.options.offset_scope == "table"
        return {
            owner: coverage
            for owner, coverage in state.coverage.items()
            if is_skipped(state.scope_of(owner), self.options.scope, skips_all=skips_all)
        }

    def commit(self, batch: Batch, topics: Topics) -> Outcome:
        """Makes the batch part of the table, once and for all. Its files are the table's business from here on."""
        if not batch.files:
            return Outcome(status="empty")
        ids = topics.ids([*{item.partition.topic for file in batch.files for item in file.ranges}])
        explain = _remembering(topics.explain)
        trimmed = 0
        for attempt in range(MAX_ATTEMPTS):
            snapshot = self.load()
            if is_replay(snapshot.state, batch):
                self.discard(batch.files)
                return Outcome(status="replayed", trimmed=trimmed, commits=snapshot.state.commits)
            check_writer(snapshot.state, batch)
            known = self.current_state(snapshot.state, ids)
            kept = self._without_rows_of_others(known, batch)
            trimmed += batch.rows - kept.rows
            batch = kept
            if not batch.files:
                return Outcome(status="covered", trimmed=trimmed, commits=snapshot.state.commits)
            ranges = ranges_of(known, batch, explain, ids)
            state = state_after(known, batch, ranges)
            self.step("decided")
            self._check_files(batch)
            try:
                self.append(snapshot, batch, ranges, state)
            except Conflict:
                time.sleep(min(MAX_BACKOFF_S, 0.01 * 2**attempt) * random.uniform(0.5, 1.5))
                continue
            self.step("committed")
            return Outcome(
                status="committed", rows=batch.rows, trimmed=trimmed, ranges=tuple(ranges), commits=state.commits
            )
        raise TooManyConflicts(f"the table {self.name} changed {MAX_ATTEMPTS} times while a batch was to be committed")

    def _check_files(self, batch: Batch) -> None:
        """A commit that refers to a file that is not there makes the whole table unreadable. Raises FilesLost."""
        place = self.place
        found = place.filesystem.get_file_info([place.path(file.path) for file in batch.files])
        lost = [item.path for item, file in zip(found, batch.files, strict=True) if item.size != file.bytes]
        if lost:
            raise FilesLost(
                f"{len(lost)} of the {len(batch.files)} files of a batch for the table {self.name} were deleted or cut "
                f"before the commit, {lost[0]} among them: nothing was committed, run the batch again"
            )

    def discard(self, files: Sequence[DataFile]) -> None:
        """Files that will never be part of the table."""
        discard_files(self.place, [file.path for file in files])

    def is_maintenance_due(self, outcome: Outcome) -> bool:
        every = self.options.compact_every
        return outcome.status == "committed" and every > 0 and outcome.commits % every == 0

    def offsets(self, partition: TopicPartition, start: int, end: int) -> Runs:
        """Those in the table between two offsets, from its rows."""
        rows = self.read(["offset"], Rows(*partition, start, end))
        return runs.union([runs.of_offsets(offsets_of(batch)) for batch in rows])

    def _without_rows_of_others(self, state: TableState, batch: Batch) -> Batch:
        """Rows that another writer has committed since the executors looked, or where only the table knows.

        Raises AnotherApplication.
        """
        if not batch.tracked:
            return batch
        covered: dict[TopicPartition, Runs] = {}
        for overlap in overlapped(state, batch):
            partition, scope = overlap.partition, overlap.scope
            if is_refused(scope, batch):
                self._check_apart(state, batch, overlap)
            elif is_skipped(scope, batch.scope, skips_all=batch.skips_all):
                parts = [self._runs_of(state, partition, hit) for hit in overlap.intervals]
                covered[partition] = runs.union([covered.get(partition, runs.NOTHING), *parts])
        if not covered:
            return batch
        name = TaskName(batch.writer, batch.number or 0, REWRITING_TASK)
        hashed = next(item.checksum.columns for file in batch.files for item in file.ranges if item.checksum)
        job = replace(self.job(self.schema()), hashed=hashed, tracked=True)
        kept = without_offsets(job, batch.files, covered, name)
        return replace(batch, files=tuple(kept))

    def _check_apart(self, state: TableState, batch: Batch, overlap: Overlap) -> None:
        """The batch's files go where it is refused: no commit was tried."""
        theirs = runs.union([self._runs_of(state, overlap.partition, hit) for hit in overlap.intervals])
        common = runs.intersect(held_by(batch.files)[overlap.partition].runs, theirs)
        if common:
            self.discard(batch.files)
            raise another_application(batch, overlap.scope, overlap.partition, common)

    def _runs_of(self, state: TableState, partition: TopicPartition, interval: Interval) -> Runs:
        """Raises TopicRecreated where rows of a deleted topic stand in the way."""
        if interval.dense:
            return runs.of_bounds([(interval.start, interval.end)])
        if partition.topic in state.recreated:
            raise TopicRecreated(
                f"which of the offsets {interval.start} to {interval.end - 1} of {partition} are in the table "
                f"{self.name} cannot be told, because it also has rows of a deleted topic of that name: go on with the "
                "checkpoint that wrote them, or write to another table"
            )
        return self.offsets(partition, interval.start, interval.end)


def _remembering(explain: Explain) -> Explain:
    """An attempt that follows a conflict asks no second time."""
    known: dict[tuple[TopicPartition, tuple[tuple[int, int], ...]], Sequence[Gap]] = {}

    def answer(partition: TopicPartition, holes: Sequence[tuple[int, int]]) -> Sequence[Gap]:
        key = partition, tuple(holes)
        if key not in known:
            known[key] = explain(partition, holes)
        return known[key]

    return answer


def new_writer() -> str:
    """For a write that nobody numbers."""
    return f"batch-{uuid.uuid4()}"
