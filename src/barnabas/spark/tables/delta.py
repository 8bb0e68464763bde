"""Delta tables, through ``deltalake``: one commit of the log per batch.

The commit has the Parquet files as add actions, an application transaction (application id, batch id), which other
writers of Delta understand, and in its commit info the table's state. The log's own retries are off: a retry would put
a state on top of one that it was not made from. What a later commit of somebody else's does not carry is looked for in
the commits before it; where the log was cut, offsets are taken from the table's rows.
"""

from __future__ import annotations

import json
import math
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from barnabas.spark.tables.base import Compacted, Expired, Snapshot, Table
from barnabas.spark.tables.commit import Batch
from barnabas.spark.tables.errors import Conflict, NotWritable, TableError
from barnabas.spark.tables.files import DataFile, names, statistics_json
from barnabas.spark.tables.options import TableOptions
from barnabas.spark.tables.parquet_writer import discard_files
from barnabas.spark.tables.partitioning import IDENTITY, PartitionField, parse_fields
from barnabas.spark.tables.readable import ALL_ROWS, CommitInfo, Rows, filter_of
from barnabas.spark.tables.schema import for_format
from barnabas.spark.tables.state import Range, TableState, dump_range, dump_state, load_range, load_state

STATE = "barnabas.state"
COMMIT = "barnabas.commit"
PARTITION_BY = "barnabas.partitionBy"
"""Table properties and commit info."""

HOUR_S = 3600
DELTA_RETENTION_S = 7 * 86400
"""Delta's checkpoints drop the record of a replaced file after this time, unless a table property says otherwise."""

MAX_COMMITS_SEARCHED = 1000
"""So far back a state is looked for under commits of others."""


class Delta(Table):
    format = "delta"

    def __init__(self, options: TableOptions) -> None:
        super().__init__(options)
        self._opened: DeltaTable | None = None

    @property
    def name(self) -> str:
        return self.options.path

    @property
    def location(self) -> str:
        return self.options.path

    def exists(self) -> bool:
        return DeltaTable.is_deltatable(self.options.path)

    def _table(self, *, fresh: bool = False) -> DeltaTable:
        if self._opened is None or fresh:
            try:
                self._opened = DeltaTable(self.options.path)
            except DeltaError as error:
                raise TableError(f"the Delta table {self.name} cannot be opened: {error}") from error
        return self._opened

    def create(self, schema: pa.Schema, fields: tuple[PartitionField, ...]) -> None:
        derived = [pa.field(item.name, item.kind(schema)) for item in fields if item.transform != IDENTITY]
        try:
            DeltaTable.create(
                self.options.path,
                schema=pa.schema([*schema, *derived]),
                partition_by=[item.name for item in fields] or None,
                mode="ignore",
                configuration={PARTITION_BY: ",".join(map(str, fields))},
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            if not self.exists():
                raise NotWritable(f"the Delta table {self.name} cannot be created: {error}") from error
        self._opened = None

    def add_columns(self, merged: pa.Schema) -> None:
        """A commit of its own: columns without rows harm nobody."""
        known = self.schema().names
        wanted = [field for field in Schema.from_arrow(merged).fields if field.name not in known]
        try:
            self._table(fresh=True).alter.add_columns(wanted)
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        finally:
            self._opened = None

    def schema(self) -> pa.Schema:
        derived = {item.name for item in self.fields() if item.transform != IDENTITY}
        found = for_format(pa.schema(self._table().schema().to_arrow()), self.format)
        return pa.schema([item for item in found if item.name not in derived])

    def fields(self) -> tuple[PartitionField, ...]:
        metadata = self._table().metadata()
        noted = parse_fields(metadata.configuration.get(PARTITION_BY) or "")
        if [item.name for item in noted] == list(metadata.partition_columns):
            return noted
        return tuple(PartitionField(name) for name in metadata.partition_columns)

    def load(self) -> Snapshot:
        table = self._table(fresh=True)
        version = table.version()
        for _ in range(MAX_COMMITS_SEARCHED):
            info = self._commit_info(version) if version >= 0 else None
            if info is None:
                break
            if STATE in info:
                return Snapshot(load_state(info[STATE]), table)
            version = _restored_version(info, version - 1)
        return Snapshot(self.rebuilt_state() if table.file_uris() else TableState(), table)

    def _commit_info(self, version: int) -> dict[str, Any] | None:
        """None where the log does not reach back so far."""
        actions = self._actions(version)
        return None if actions is None else _info_of(actions)

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of one commit; None where the log does not reach back so far."""
        place = self.place
        try:
            with place.filesystem.open_input_file(place.path(f"_delta_log/{version:020d}.json")) as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError:
            return None
        return [json.loads(line) for line in lines if line.strip()]

    def append(self, snapshot: Snapshot, batch: Batch, ranges: Sequence[Range], state: TableState) -> None:
        table: DeltaTable = snapshot.token
        fields = self.fields()
        now_ms = int(time.time() * 1000)
        properties = CommitProperties(
            custom_metadata={STATE: dump_state(state), COMMIT: _commit_text(batch, ranges)},
            max_commit_retries=0,
            app_transactions=[] if batch.number is None else [Transaction(batch.application, batch.number)],
        )
        try:
            table.create_write_transaction(
                [_add(file, fields, now_ms) for file in batch.files],
                "append",
                table.schema(),
                [item.name for item in fields],
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error

    def read(self, columns: Sequence[str], rows: Rows = ALL_ROWS) -> Iterator[pa.RecordBatch]:
        dataset = self._table(fresh=True).to_pyarrow_dataset()
        yield from dataset.scanner(columns=list(columns), filter=filter_of(rows)).to_batches()

    def files(self) -> list[str]:
        return list(self._table(fresh=True).file_uris())

    def commits(self) -> list[CommitInfo]:
        found: list[CommitInfo] = []
        version = self._table(fresh=True).version()
        while version >= 0 and (info := self._commit_info(version)) is not None:
            found.append(_commit(version, info))
            version -= 1
        return found

    def compact(self) -> Compacted:
        table = self._table(fresh=True)
        properties = WriterProperties(compression=_compression(self.options.compression))
        try:
            result = table.optimize.compact(target_size=self.options.target_bytes, writer_properties=properties)
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        return Compacted(result["numFilesRemoved"], result["numFilesAdded"])

    def expire(self) -> Expired:
        """The state is put on top first where it lies under other commits, so that it outlives them."""
        snapshot = self.load()
        newest = self._commit_info(snapshot.token.version()) or {}
        if STATE not in newest and (snapshot.state.commits or snapshot.state.coverage):
            self._carry_forward(snapshot)
        table = self._table(fresh=True)
        gone = self._expired_files(table)
        discard_files(self.place, gone)
        before = self._log_length()
        table.create_checkpoint()
        table.cleanup_metadata()
        return Expired(before - self._log_length(), len(gone))

    def _expired_files(self, table: DeltaTable) -> set[str]:
        """Files that were replaced before ``expireAfter``, and files that no commit refers to and no batch can need.

        deltalake counts whole hours, so it lists too many files for the first and too few for the second.
        """
        expire_s = self.options.expire_after_s
        replaced = _unused_files(table, int(expire_s // HOUR_S), full=False)
        orphans = _unused_files(table, math.ceil(self.options.orphan_age_s / HOUR_S), full=True)
        found = replaced | orphans
        if found and (expire_s % HOUR_S or expire_s > DELTA_RETENTION_S):
            found -= self._replaced_since(table.version(), (time.time() - expire_s) * 1000)
        return found

    def _replaced_since(self, version: int, limit_ms: float) -> set[str]:
        found: set[str] = set()
        while (actions := self._actions(version)) is not None:
            removed = [action["remove"] for action in actions if "remove" in action]
            young = [item for item in removed if item.get("deletionTimestamp", limit_ms) >= limit_ms]
            found |= {urllib.parse.unquote(item["path"]) for item in young}
            if _info_of(actions).get("timestamp", limit_ms) < limit_ms:
                break
            version -= 1
        return found

    def _carry_forward(self, snapshot: Snapshot) -> None:
        properties = CommitProperties(custom_metadata={STATE: dump_state(snapshot.state)}, max_commit_retries=0)
        table: DeltaTable = snapshot.token
        names = [item.name for item in self.fields()]
        try:
            table.create_write_transaction([], "append", table.schema(), names, commit_properties=properties)
        except CommitFailedError:
            return  # the commit that was faster carries it, or the next expiry does

    def _log_length(self) -> int:
        return sum(name.endswith(".json") for name in names(self.place, "_delta_log"))


def _info_of(actions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def _unused_files(table: DeltaTable, hours: int, *, full: bool) -> set[str]:
    """Not ``full``: only those that commits have replaced. Otherwise also those that no commit refers to."""
    return set(table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=full))


def _restored_version(info: dict[str, Any], before: int) -> int:
    """Where the state is to be looked for under a commit of others: a table that was set back has that of its past."""
    if info.get("operation") != "RESTORE":
        return before
    version = (info.get("operationParameters") or {}).get("version")
    return int(version) if version is not None and str(version).isdigit() else -1


def _add(file: DataFile, fields: Sequence[PartitionField], now_ms: int) -> AddAction:
    values = {item.name: value for item, value in zip(fields, file.partition, strict=True)}
    return AddAction(file.path, file.bytes, values, now_ms, True, statistics_json(file))


def _commit_text(batch: Batch, ranges: Sequence[Range]) -> str:
    found = {
        "application": batch.application,
        "writer": batch.writer,
        "batch": batch.number,
        "rows": batch.rows,
        "ranges": [dump_range(item) for item in ranges],
    }
    return json.dumps(found, separators=(",", ":"))


def _commit(version: int, info: dict[str, Any]) -> CommitInfo:
    ours = json.loads(info.get(COMMIT) or "{}")
    return CommitInfo(
        str(version),
        info.get("timestamp", 0),
        info.get("operation", ""),
        ours.get("application"),
        ours.get("batch"),
        ours.get("rows"),
        tuple(load_range(item) for item in ours.get("ranges", ())),
    )


def _compression(name: str) -> Any:
    return {"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}.get(name, name.upper())
