"""Iceberg tables, through ``pyiceberg``: one snapshot per batch.

The snapshot's summary has application id, batch id, ranges and the table's state, so that a table that is rolled back
has the state of its past; the state is a table property as well, set in the same transaction, so that it outlives every
snapshot. The catalog is any that pyiceberg knows; where none is named, an SQLite
file beside the data. pyiceberg's own retries are off: a retry would put a state on top of one it was not made from.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import expressions, transforms
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValidationException
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table as IcebergTable
from sqlalchemy.exc import OperationalError

from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables.base import REWRITING_TASK, Compacted, Expired, Snapshot, Table, new_writer
from barnabas.spark.tables.commit import Batch
from barnabas.spark.tables.errors import Conflict, NotWritable, SchemaChanged, TableError
from barnabas.spark.tables.files import listed, open_place
from barnabas.spark.tables.options import TableOptions
from barnabas.spark.tables.parquet_writer import TaskName, discard_files, has_statistics, write_files
from barnabas.spark.tables.partitioning import PartitionField
from barnabas.spark.tables.readable import ALL_ROWS, CommitInfo, Rows, conditions_of
from barnabas.spark.tables.schema import conform, for_format
from barnabas.spark.tables.state import Range, TableState, dump_range, dump_state, load_range, load_state

STATE = "barnabas.state"
APPLICATION = "barnabas.application"
BATCH = "barnabas.batch"
RANGES = "barnabas.ranges"

DEFAULT_CATALOG = "default"
CATALOG_FILE = "catalog.db"

PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Of tables that are created here: a commit per batch would otherwise leave a metadata file for each."""

SPARE_SNAPSHOTS = 10
"""So many more than are to be retained, and the oldest are expired: every commit copies them all several times."""

NO_RETRIES = {"commit.retry.num-retries": "0"}

_TRANSFORMS = {
    "identity": transforms.IdentityTransform,
    "year": transforms.YearTransform,
    "month": transforms.MonthTransform,
    "day": transforms.DayTransform,
    "hour": transforms.HourTransform,
}
_SCHEME = re.compile(r"^\w+://")


class Iceberg(Table):
    format = "iceberg"
    folder = "data/"
    keeps_columns = True

    def __init__(self, options: TableOptions) -> None:
        super().__init__(options)
        self._catalog: Catalog | None = None
        self._opened: IcebergTable | None = None

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._opened = None

    @property
    def name(self) -> str:
        return self.options.table

    @property
    def location(self) -> str:
        return str(self._table().location())

    @property
    def catalog(self) -> Catalog:
        if self._catalog is None:
            settings = catalog_settings(self.options)
            try:
                self._catalog = load_catalog(settings.pop("name", DEFAULT_CATALOG), **settings)
            except (OSError, OperationalError, ValueError) as error:
                raise TableError(f"the catalog of the table {self.name} cannot be opened: {error}") from error
        return self._catalog

    def _table(self, *, fresh: bool = False) -> IcebergTable:
        if self._opened is None or fresh:
            try:
                self._opened = self.catalog.load_table(self.name)
            except NoSuchTableError as error:
                raise TableError(f"there is no Iceberg table {self.name}") from error
        return self._opened

    def exists(self) -> bool:
        return bool(self.catalog.table_exists(self.name))

    def create(self, schema: pa.Schema, fields: tuple[PartitionField, ...]) -> None:
        try:
            self.catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            with self.catalog.create_table_transaction(self.name, schema, properties=PROPERTIES) as transaction:
                names = _without_statistics(transaction.table_metadata.schema())
                transaction.set_properties({f"write.metadata.metrics.column.{name}": "none" for name in names})
                with transaction.update_spec() as update:
                    for item in fields:
                        update.add_field(item.column, _TRANSFORMS[item.transform](), item.name)
        except (TableAlreadyExistsError, CommitFailedException, OperationalError, OSError) as error:
            if not self.exists():
                raise NotWritable(f"the Iceberg table {self.name} cannot be created: {error}") from error
        except (TypeError, ValueError) as error:
            raise SchemaChanged(f"the Iceberg table {self.name} cannot hold these columns: {error}") from error

    def add_columns(self, merged: pa.Schema) -> None:
        try:
            with self._table(fresh=True).update_schema() as update:
                update.union_by_name(merged)
        except (CommitFailedException, OperationalError) as error:
            raise Conflict(str(error)) from error
        finally:
            self._opened = None

    def schema(self) -> pa.Schema:
        return for_format(self._table().schema().as_arrow(), self.format)

    def fields(self) -> tuple[PartitionField, ...]:
        schema = self._table().schema()
        found: list[PartitionField] = []
        for item in self._table().spec().fields:
            kind = str(item.transform)
            if kind not in _TRANSFORMS:
                raise TableError(
                    f"the table {self.name} is partitioned by {item.name} ({kind}), which is not supported"
                )
            found.append(PartitionField(str(schema.find_column_name(item.source_id)), kind))
        return tuple(found)

    def load(self) -> Snapshot:
        table = self._table(fresh=True)
        text = _state_of_snapshots(table) or table.properties.get(STATE)
        if text is not None:
            return Snapshot(load_state(text), table)
        return Snapshot(self.rebuilt_state() if table.current_snapshot() else TableState(), table)

    def append(self, snapshot: Snapshot, batch: Batch, ranges: Sequence[Range], state: TableState) -> None:
        table: IcebergTable = snapshot.token
        properties = {
            APPLICATION: batch.application,
            BATCH: "" if batch.number is None else str(batch.number),
            RANGES: json.dumps([dump_range(item) for item in ranges], separators=(",", ":")),
            STATE: dump_state(state),
        }
        transaction = _transaction(table)
        paths = [f"{table.location()}/{file.path}" for file in batch.files]
        transaction.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)
        transaction.set_properties({STATE: properties[STATE]})
        self.step("staged")
        _commit(transaction)

    def read(self, columns: Sequence[str], rows: Rows = ALL_ROWS) -> Iterator[pa.RecordBatch]:
        table = self._table(fresh=True)
        known = self.schema()
        wanted = pa.schema([known.field(name) for name in columns])
        scan = table.scan(row_filter=_filter(rows), selected_fields=tuple(columns))
        for batch in scan.to_arrow_batch_reader():
            yield conform(batch, wanted)

    def files(self) -> list[str]:
        return [task.file.file_path for task in self._table(fresh=True).scan().plan_files()]

    def commits(self) -> list[CommitInfo]:
        return [_commit_info(item) for item in reversed(_by_age(self._table(fresh=True)))]

    def compact(self) -> Compacted:
        table = self._table(fresh=True)
        tasks = list(table.scan().plan_files())
        candidates = [Candidate(str(task.file.partition), task.file.file_size_in_bytes, task.file) for task in tasks]
        groups = plan(candidates, self.options.target_bytes)
        if not groups:
            return Compacted(0, 0)
        job = replace(self.job(self.schema()), tracked=False)
        name = TaskName(new_writer(), 0, REWRITING_TASK)
        written = [file for group in groups for file in write_files(job, self._rows(group), name).files]
        transaction = _transaction(table)
        try:
            with transaction.update_snapshot().overwrite() as update:
                for file in [item for group in groups for item in group]:
                    update.delete_data_file(file)
                paths = iter(f"{table.location()}/{file.path}" for file in written)
                for found in parquet_files_to_data_files(table.io, transaction.table_metadata, paths):
                    update.append_data_file(found)
            self.step("staged")
            _commit(transaction)
        except Conflict:
            discard_files(self.place, [file.path for file in written])
            raise
        return Compacted(sum(map(len, groups)), len(written))

    def _rows(self, group: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        place = self.place
        for file in group:
            with place.filesystem.open_input_file(_bare(file.file_path)) as stream:
                yield from pq.ParquetFile(stream).iter_batches()

    def tidy(self) -> None:
        if len(self._table(fresh=True).snapshots()) > self.options.retain_snapshots + SPARE_SNAPSHOTS:
            self._expire_snapshots()

    def expire(self) -> Expired:
        return Expired(self._expire_snapshots(), self._delete_orphans())

    def _expire_snapshots(self) -> int:
        """All but the newest, and those with files that were replaced lately: somebody may be reading them."""
        table = self._table(fresh=True)
        limit_ms = (time.time() - self.options.expire_after_s) * 1000
        snapshots = _by_age(table)
        kept = {reference.snapshot_id for reference in table.refs().values()}
        kept |= {item.snapshot_id for item in snapshots[-max(1, self.options.retain_snapshots) :]}
        kept |= {item.parent_snapshot_id for item in snapshots if _replaces(item) and item.timestamp_ms >= limit_ms}
        ids = [item.snapshot_id for item in snapshots if item.snapshot_id not in kept]
        if ids:
            try:
                table.maintenance.expire_snapshots().by_ids(ids).commit()
            except (CommitFailedException, OperationalError) as error:
                raise Conflict(str(error)) from error
        return len(ids)

    def _delete_orphans(self) -> int:
        """Files of the table's folders that no snapshot leads to; not young ones, which may be on their way in.

        The folders are listed first: what is committed after that is then found in the table.
        """
        place = self.place
        limit_s = time.time() - self.options.orphan_age_s
        found = [*listed(place, "data"), *listed(place, "metadata")]
        kept = _reachable(self._table(fresh=True))
        orphans = [path for path, changed_s in found if place.path(path) not in kept and changed_s < limit_s]
        discard_files(place, orphans)
        return len(orphans)


def catalog_settings(options: TableOptions) -> dict[str, str]:
    """What pyiceberg is to be told."""
    settings = dict(options.catalog)
    if not options.path:
        return settings
    place = open_place(options.path)
    warehouse = f"file://{place.root}" if place.is_local else options.path
    settings.setdefault("warehouse", warehouse)
    if "uri" not in settings and "type" not in settings:
        if not place.is_local:
            raise SparkOptionError(f"catalog.uri is missing: an SQLite catalog cannot lie in {options.path}")
        settings |= {"type": "sql", "uri": f"sqlite:///{place.root}/{CATALOG_FILE}"}
    return settings


def _without_statistics(schema: Any) -> list[str]:
    """Bytes and what is inside of other columns: there the files have no bounds to take over."""
    arrow = schema.as_arrow()
    names = [schema.find_column_name(number) for number in schema.field_ids]
    kinds = {item.name: item.type for item in for_format(arrow, "iceberg")}
    return [name for name in names if name not in kinds or not has_statistics(kinds[name])]


def _transaction(table: IcebergTable) -> Any:
    """Without retries. The copy of the properties is this process's own: the catalog never sees it."""
    table.metadata.properties.update(NO_RETRIES)
    return table.transaction()


def _commit(transaction: Any) -> None:
    try:
        transaction.commit_transaction()
    except (CommitFailedException, ValidationException) as error:
        raise Conflict(str(error)) from error
    except OperationalError as error:
        if "locked" not in str(error):
            raise
        raise Conflict(str(error)) from error


def _commit_info(snapshot: Any) -> CommitInfo:
    summary = snapshot.summary
    found = summary.additional_properties if summary is not None else {}
    batch, rows = found.get(BATCH), found.get("added-records")
    return CommitInfo(
        str(snapshot.snapshot_id),
        snapshot.timestamp_ms,
        str(summary.operation.value) if summary is not None else "",
        found.get(APPLICATION),
        int(batch) if batch else None,
        int(rows) if rows else None,
        tuple(load_range(item) for item in json.loads(found.get(RANGES, "[]"))),
    )


def _state_of_snapshots(table: IcebergTable) -> str | None:
    """That of the newest commit of ours among the snapshots that led to the current one."""
    by_id = {item.snapshot_id: item for item in table.snapshots()}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found = snapshot.summary.additional_properties.get(STATE) if snapshot.summary is not None else None
        if found is not None:
            return str(found)
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)
    return None


def _by_age(table: IcebergTable) -> list[Any]:
    return sorted(table.snapshots(), key=lambda item: item.sequence_number or 0)


def _replaces(snapshot: Any) -> bool:
    """Whether it has taken files out of the table."""
    return snapshot.summary is not None and snapshot.summary.operation.value != "append"


def _bare(uri: str) -> str:
    """As pyarrow's file systems name files."""
    return _SCHEME.sub("", uri)


def _reachable(table: IcebergTable) -> set[str]:
    """Every file that some snapshot, or the table itself, leads to."""
    found = {_bare(table.metadata_location), *(_bare(item.metadata_file) for item in table.metadata.metadata_log)}
    seen: set[str] = set()
    for snapshot in table.snapshots():
        found.add(_bare(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found |= {_bare(entry.data_file.file_path) for entry in entries}
    return found | {_bare(path) for path in seen}


def _filter(rows: Rows) -> Any:
    make: Any = expressions  # its classes take a column's name, which their types do not say
    kinds = {"==": make.EqualTo, ">=": make.GreaterThanOrEqual, "<": make.LessThan}
    found: Any = make.AlwaysTrue()
    for column, operator, value in conditions_of(rows):
        found = make.And(found, kinds[operator](column, value.isoformat() if column == "timestamp" else value))
    return found


T = TypeVar("T")

SMALL = 0.75
"""Of the size that is aimed at: larger files stay as they are."""


class Candidate(NamedTuple, Generic[T]):
    folder: Hashable
    """Only files of one partition go together."""
    bytes: int
    item: T


def plan(candidates: Iterable[Candidate[T]], target_bytes: int) -> list[list[T]]:
    """Groups of at least two, each of about the target's size, in the order given."""
    open_groups: dict[Hashable, tuple[list[T], int]] = {}
    full: list[list[T]] = []
    for folder, size, item in candidates:
        if size >= target_bytes * SMALL:
            continue
        group, total = open_groups.get(folder, ([], 0))
        if total + size > target_bytes and group:
            full.append(group)
            group, total = [], 0
        open_groups[folder] = [*group, item], total + size
    return [group for group in [*full, *(group for group, _ in open_groups.values())] if len(group) > 1]
