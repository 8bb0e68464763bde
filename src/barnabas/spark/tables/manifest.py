"""The log of a plain Parquet table: numbered JSON files, each created once and never changed.

``_manifest/00000000000000000007.json`` says what the seventh commit added and removed, and carries the table's state.
Every SNAPSHOT_EVERY commits ``….snapshot.json`` lists all files, so that older commits are not needed for reading.
``_manifest/applied`` says up to which commit every file is in its place: see ``parquet`` for what that is for.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from barnabas.spark.tables import storage
from barnabas.spark.tables.errors import Conflict, Damaged
from barnabas.spark.tables.files import DataFile, Place, json_value
from barnabas.spark.tables.partitioning import PartitionField, parse_fields
from barnabas.spark.tables.state import Range, TableState, dump_range, dump_state, load_range, load_state

FOLDER = "_manifest"
APPLIED = f"{FOLDER}/applied"
SNAPSHOT_EVERY = 20
MAX_LOOKS = 3
"""While one reads, another may expire what was just listed: then it is listed again."""
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One commit."""

    version: int
    timestamp_ms: int
    operation: str
    """create, append, columns, compact."""
    schema: pa.Schema
    fields: tuple[PartitionField, ...]
    state: TableState
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    application: str | None = None
    batch: int | None = None
    writer: str | None = None
    rows: int | None = None
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The table as of its last commit."""

    last: Entry
    files: dict[str, DataFile] = field(default_factory=dict)
    """By path, in the order of commits."""
    pending: tuple[Entry, ...] = ()
    """Commits whose files may not be in their places yet."""


def entry_path(version: int) -> str:
    return f"{FOLDER}/{version:020d}.json"


def snapshot_path(version: int) -> str:
    return f"{FOLDER}/{version:020d}.snapshot.json"


def versions(place: Place) -> tuple[list[int], list[int]]:
    """Of commits, and of snapshots."""
    names = storage.names(place, FOLDER)
    commits = [int(name[:20]) for name in names if name[:20].isdigit() and name[20:] == ".json"]
    snapshots = [int(name[:20]) for name in names if name[:20].isdigit() and name[20:] == ".snapshot.json"]
    return commits, snapshots


def load(place: Place) -> Manifest | None:
    """None where there is no table."""
    for _ in range(MAX_LOOKS):
        with suppress(Damaged):
            return _load(place)
    return _load(place)


def _load(place: Place) -> Manifest | None:
    commits, snapshots = versions(place)
    if not commits:
        return None
    files: dict[str, DataFile] = {}
    base = 0
    for version in reversed(snapshots):
        found = storage.read(place, snapshot_path(version))
        if found is not None and version <= commits[-1]:
            base = version
            files = {item.path: item for item in map(load_file, json.loads(found)["files"])}
            break
    applied = read_applied(place)
    entries = _entries(place, [version for version in commits if version > min(base, applied)] or commits[-1:])
    if entries[0].version > base + 1:
        raise Damaged(f"commits {base + 1} to {entries[0].version - 1} are missing in {place.path(FOLDER)}")
    for entry in entries:
        if entry.version > base:
            for path in entry.removed:
                files.pop(path, None)
            files |= {item.path: item for item in entry.added}
    return Manifest(last=entries[-1], files=files, pending=tuple(item for item in entries if item.version > applied))


def _entries(place: Place, wanted: list[int]) -> list[Entry]:
    if wanted != list(range(wanted[0], wanted[0] + len(wanted))):
        raise Damaged(f"commits are missing in {place.path(FOLDER)}: there are {wanted}")
    return [read_entry(place, version) for version in wanted]


def read_entry(place: Place, version: int) -> Entry:
    found = storage.read(place, entry_path(version))
    if found is None:
        raise Damaged(f"{place.path(entry_path(version))} has gone")
    return load_entry(json.loads(found))


def write(place: Place, entry: Entry) -> None:
    """The atomic step. Raises Conflict where another commit has the number."""
    if not storage.create(place, entry_path(entry.version), json.dumps(dump_entry(entry)).encode()):
        raise Conflict(f"commit {entry.version} is there already")


def write_snapshot(place: Place, manifest: Manifest) -> None:
    content = {"format": FORMAT, "files": [dump_file(item) for item in manifest.files.values()]}
    storage.replace(place, snapshot_path(manifest.last.version), json.dumps(content).encode())


def read_applied(place: Place) -> int:
    found = storage.read(place, APPLIED)
    return int(found) if found else 0


def write_applied(place: Place, version: int) -> None:
    if version > read_applied(place):
        storage.replace(place, APPLIED, str(version).encode())


def dump_entry(entry: Entry) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": entry.version,
        "timestamp": entry.timestamp_ms,
        "operation": entry.operation,
        "application": entry.application,
        "writer": entry.writer,
        "batch": entry.batch,
        "rows": entry.rows,
        "ranges": [dump_range(item) for item in entry.ranges],
        "add": [dump_file(item) for item in entry.added],
        "remove": list(entry.removed),
        "columns": {item.name: str(item.type) for item in entry.schema},
        "schema": base64.b64encode(entry.schema.serialize().to_pybytes()).decode(),
        "partitionBy": ",".join(map(str, entry.fields)),
        "state": json.loads(dump_state(entry.state)),
    }


def load_entry(found: dict[str, Any]) -> Entry:
    if found["format"] != FORMAT:
        raise Damaged(f"the manifest has format {found['format']}; this version of barnabas knows {FORMAT}")
    return Entry(
        version=found["version"],
        timestamp_ms=found["timestamp"],
        operation=found["operation"],
        schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"]))),
        fields=parse_fields(found["partitionBy"]),
        state=load_state(json.dumps(found["state"])),
        added=tuple(map(load_file, found["add"])),
        removed=tuple(found["remove"]),
        application=found["application"],
        writer=found["writer"],
        batch=found["batch"],
        rows=found["rows"],
        ranges=tuple(map(load_range, found["ranges"])),
    )


def dump_file(file: DataFile) -> dict[str, Any]:
    """Without its offsets: the commit's ranges have them."""
    return {
        "path": file.path,
        "written": file.written,
        "rows": file.rows,
        "bytes": file.bytes,
        "partition": list(file.partition),
        "statistics": {
            name: [json_value(low), json_value(high), nulls] for name, (low, high, nulls) in file.statistics.items()
        },
    }


def load_file(found: dict[str, Any]) -> DataFile:
    return DataFile(
        path=found["path"],
        written=found["written"],
        rows=found["rows"],
        bytes=found["bytes"],
        partition=tuple(found["partition"]),
        statistics={name: (low, high, nulls) for name, (low, high, nulls) in found["statistics"].items()},
    )
