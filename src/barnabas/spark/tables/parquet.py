"""Plain Parquet files in a folder, with a manifest that makes batches whole.

Theory of operation. Executors write to ``_pending``, which no reader looks into. A commit is a numbered manifest file,
created by a link that fails where the number is taken: from then on the batch is in the table. Only then are its files
moved to their places; killed in between, whoever opens the table next moves the rest (``_apply``), by the same
manifest, as often as it takes. So a folder that was opened once after a crash holds exactly what was committed: a
reader of the folder (``pq.read_table``, DuckDB's ``**/*.parquet``, Spark) and one of the manifest see the same rows.

While a commit is under way, a reader of the folder may see a part of its files; ``files()`` never does. A compaction
moves the new file in before it deletes the old ones, so for a moment such a reader sees rows twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from barnabas.spark.tables import manifest as manifests
from barnabas.spark.tables import storage
from barnabas.spark.tables.base import REWRITING_TASK, CommitInfo, Compacted, Expired, Snapshot, Table, new_writer
from barnabas.spark.tables.committing import Batch
from barnabas.spark.tables.compaction import Candidate, plan
from barnabas.spark.tables.errors import Conflict, Damaged, TableError
from barnabas.spark.tables.expressions import ALL_ROWS, Rows, filter_of, is_outside
from barnabas.spark.tables.files import DataFile
from barnabas.spark.tables.manifest import Entry, Manifest
from barnabas.spark.tables.options import TableOptions
from barnabas.spark.tables.partitioning import IDENTITY, PartitionField
from barnabas.spark.tables.schema import merge
from barnabas.spark.tables.state import Range, TableState
from barnabas.spark.tables.writing import PENDING, TaskName, discard_files, pending_folder, write_files


class Parquet(Table):
    format = "parquet"
    is_pending = True
    hive_folders = True

    def __init__(self, options: TableOptions) -> None:
        super().__init__(options)
        self._opened: Manifest | None = None

    @property
    def name(self) -> str:
        return self.options.path

    @property
    def location(self) -> str:
        return self.options.path

    def exists(self) -> bool:
        return bool(manifests.versions(self.place)[0])

    def _manifest(self, *, fresh: bool = False) -> Manifest:
        if self._opened is None or fresh:
            found = manifests.load(self.place)
            if found is None:
                raise TableError(f"there is no table with a manifest in {self.name}")
            self._opened = found
        return self._opened

    def create(self, schema: pa.Schema, fields: tuple[PartitionField, ...]) -> None:
        foreign = [name for name in storage.names(self.place, "") if not name.startswith(("_", "."))]
        if foreign:
            raise TableError(
                f"the folder {self.name} has no manifest, but holds {foreign[0]}: rows that nobody accounts for would "
                "be taken for the table's; choose an empty folder"
            )
        first = Entry(
            version=1, timestamp_ms=_now_ms(), operation="create", schema=schema, fields=fields, state=TableState()
        )
        try:
            manifests.write(self.place, first)
        except Conflict:
            return  # created by somebody else, which is as good

    def add_columns(self, merged: pa.Schema) -> None:
        last = self._manifest(fresh=True).last
        known = merge(last.schema, merged, add_columns=True, name=self.name)
        self._write(replace(_next(last), operation="columns", schema=known))

    def schema(self) -> pa.Schema:
        return self._manifest().last.schema

    def fields(self) -> tuple[PartitionField, ...]:
        return self._manifest().last.fields

    def recover(self) -> None:
        """Finishes commits that were cut off, where this process may."""
        found = self._manifest(fresh=True)
        if found.pending:
            with suppress(PermissionError):
                self._apply(found)

    def load(self) -> Snapshot:
        self.recover()
        found = self._manifest()
        return Snapshot(found.last.state, found)

    def append(self, snapshot: Snapshot, batch: Batch, ranges: Sequence[Range], state: TableState) -> None:
        before: Manifest = snapshot.token
        entry = replace(
            _next(before.last),
            operation="append",
            state=state,
            added=tuple(replace(file, ranges=()) for file in batch.files),
            application=batch.application,
            writer=batch.writer,
            batch=batch.number,
            rows=batch.rows,
            ranges=tuple(ranges),
        )
        self._write(entry)
        self.step("logged")
        self._apply(self._manifest(fresh=True))
        self._clear_pending(TaskName(batch.writer, batch.number or 0, REWRITING_TASK))

    def discard(self, files: Sequence[DataFile]) -> None:
        super().discard(files)
        for folder in {"/".join(file.written.split("/")[:2]) for file in files}:
            storage.prune(self.place, folder)

    def _write(self, entry: Entry) -> None:
        manifests.write(self.place, entry)
        self._opened = None

    def _apply(self, found: Manifest) -> None:
        """Every file of the open commits to its place. May be done by several at once, and again."""
        place = self.place
        later: set[str] = {path for entry in found.pending for path in entry.removed}
        for entry in found.pending:
            for file in entry.added:
                if not storage.move(place, file.written, file.path) and file.path not in later:
                    self._check_moved(file)
                self.step("moved")
            discard_files(place, entry.removed)
            storage.sync_folders(place, [*(file.path for file in entry.added), *entry.removed])
            self.step("applied")
        if found.last.version % manifests.SNAPSHOT_EVERY == 0:
            manifests.write_snapshot(place, found)
        manifests.write_applied(place, found.last.version)
        self._opened = replace(found, pending=())

    def _clear_pending(self, name: TaskName) -> None:
        """The batch is in: whatever attempts at it have left behind is of no use."""
        storage.delete_folder(self.place, pending_folder(name))
        storage.prune(self.place, f"{PENDING}/{name.writer}")

    def _check_moved(self, file: DataFile) -> None:
        """Somebody else has moved it, or a compaction has replaced it in the meantime."""
        place = self.place
        info = place.filesystem.get_file_info(place.path(file.path))
        if info.is_file or file.path not in self._manifest(fresh=True).files:
            return
        raise Damaged(f"the file {file.path} of the table {self.name} has gone")

    def read(self, columns: Sequence[str], rows: Rows = ALL_ROWS) -> Iterator[pa.RecordBatch]:
        self.recover()
        found = self._manifest()
        wanted = [file for file in found.files.values() if not is_outside(file, rows, found.last.fields)]
        yield from self._dataset(wanted).scanner(columns=list(columns), filter=filter_of(rows)).to_batches()

    def _dataset(self, files: Sequence[DataFile]) -> ds.Dataset:
        """The files as one table: columns that are folders are filled in, those that a file does not have are null."""
        found, place = self._manifest(), self.place
        form = ds.ParquetFileFormat()
        fragments = [
            form.make_fragment(
                self._path(file), place.filesystem, partition_expression=_folder_filter(file, found.last)
            )
            for file in files
        ]
        return ds.FileSystemDataset(fragments, found.last.schema, form, place.filesystem)

    def _path(self, file: DataFile) -> str:
        """Where the file is now: a reader who may not finish a commit reads it where it was written."""
        place = self.place
        if self._manifest().pending and not place.filesystem.get_file_info(place.path(file.path)).is_file:
            return place.path(file.written)
        return place.path(file.path)

    def files(self) -> list[str]:
        self.recover()
        return [self._path(file) for file in self._manifest().files.values()]

    def commits(self, limit: int | None = None) -> list[CommitInfo]:
        found = sorted(manifests.versions(self.place)[0], reverse=True)[:limit]
        return [_commit_info(manifests.read_entry(self.place, version)) for version in found]

    def compact(self) -> Compacted:
        before: Manifest = self.load().token
        candidates = [Candidate(file.partition, file.bytes, file) for file in before.files.values()]
        groups = plan(candidates, self.options.target_bytes)
        if not groups:
            return Compacted(0, 0)
        job = replace(self.job(before.last.schema), tracked=False)
        name = TaskName(new_writer(), 0, REWRITING_TASK)
        written = [file for group in groups for file in write_files(job, self._dataset(group).to_batches(), name).files]
        removed = tuple(file.path for group in groups for file in group)
        try:
            self._write(replace(_next(before.last), operation="compact", added=tuple(written), removed=removed))
        except Conflict:
            self.discard(written)
            raise
        self.step("logged")
        self._apply(self._manifest(fresh=True))
        self._clear_pending(name)
        return Compacted(len(removed), len(written))

    def expire(self) -> Expired:
        """Commits that a snapshot stands for, and pending files that nobody came back for."""
        self.load()
        place = self.place
        limit_s = time.time() - self.options.expire_after_s
        commits, snapshots = manifests.versions(place)
        applied = manifests.read_applied(place)
        bases = [
            version for version in snapshots if version <= min(applied, commits[-1] - self.options.retain_snapshots)
        ]
        old = [
            version
            for version in (commits if bases else ())
            if version < bases[-1] and manifests.read_entry(place, version).timestamp_ms / 1000 < limit_s
        ]
        paths = [manifests.entry_path(version) for version in old]
        paths += [manifests.snapshot_path(version) for version in bases[:-1]]
        discard_files(place, paths)
        orphan_limit_s = time.time() - self.options.orphan_age_s
        orphans = [path for path, changed_s in storage.listed(place, PENDING) if changed_s < orphan_limit_s]
        discard_files(place, orphans)
        return Expired(len(old), len(orphans))


def _next(last: Entry) -> Entry:
    return Entry(
        version=last.version + 1,
        timestamp_ms=_now_ms(),
        operation="",
        schema=last.schema,
        fields=last.fields,
        state=last.state,
    )


def _now_ms() -> int:
    return int(time.time() * 1000)


def _folder_filter(file: DataFile, last: Entry) -> pc.Expression:
    """What every row of the file has in common."""
    found = pc.scalar(True)
    for item, value in zip(last.fields, file.partition, strict=True):
        if item.transform == IDENTITY:
            column = pc.field(item.column)
            kind = last.schema.field(item.column).type
            found &= column.is_null() if value is None else column == pa.scalar(value).cast(kind)
    return found


def _commit_info(entry: Entry) -> CommitInfo:
    return CommitInfo(
        str(entry.version),
        entry.timestamp_ms,
        entry.operation,
        entry.application,
        entry.batch,
        entry.rows,
        entry.ranges,
    )
