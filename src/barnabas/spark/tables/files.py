"""Parquet files of a table: what is known of each, and where they are."""

from __future__ import annotations

import datetime
import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from barnabas.model.ids import TopicPartition
from barnabas.spark.tables import runs
from barnabas.spark.tables.checksum import Checksum
from barnabas.spark.tables.errors import NotWritable
from barnabas.spark.tables.runs import Runs

MAX_TEXT_STATISTICS = 128
"""Longer texts would make the log of a table longer than they make reading shorter."""

_WITH_BOUNDS = (int, str, datetime.date)
"""Not floats, whose order has holes (NaN), nor bytes, which no log can spell."""


class FileRange(NamedTuple):
    """What one file has of one partition."""

    partition: TopicPartition
    packed: bytes
    """Its offsets: see ``runs.pack``."""
    rows: int
    checksum: Checksum | None

    @property
    def runs(self) -> Runs:
        return runs.unpack(self.packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    path: str
    """In the table, with slashes."""
    rows: int
    bytes: int
    partition: tuple[str | None, ...] = ()
    """The values of the folders."""
    statistics: dict[str, tuple[Any, Any, int]] = field(default_factory=dict)
    """Smallest, largest, and how many nulls, by column."""
    ranges: tuple[FileRange, ...] = ()


def statistics_of(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, tuple[Any, Any, int]]:
    """From the file's own footer: columns of which every row group knows its bounds."""
    found: dict[str, tuple[Any, Any, int]] = {}
    wanted = {item.name for item in schema if not pa.types.is_nested(item.type)}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name in wanted:
            groups = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
            bounds = _bounds(groups)
            if bounds is not None:
                found[name] = bounds
    return found


def _bounds(groups: list[Any]) -> tuple[Any, Any, int] | None:
    if not groups or not all(item is not None and item.has_null_count for item in groups):
        return None
    nulls = sum(item.null_count for item in groups)
    filled = [item for item in groups if item.has_min_max]
    if any(not item.has_min_max and item.num_values for item in groups):
        return None
    if not filled:
        return None, None, nulls
    low, high = min(item.min for item in filled), max(item.max for item in filled)
    if not isinstance(low, _WITH_BOUNDS) or (isinstance(low, str) and max(len(low), len(high)) > MAX_TEXT_STATISTICS):
        return None
    return low, high, nulls


def statistics_json(file: DataFile) -> str:
    """As Delta's log has them."""
    low = {name: json_value(item[0]) for name, item in file.statistics.items() if item[0] is not None}
    high = {name: json_value(item[1]) for name, item in file.statistics.items() if item[1] is not None}
    nulls = {name: item[2] for name, item in file.statistics.items()}
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def json_value(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


class Place(NamedTuple):
    """A folder on some file system, by a path or a URI (``s3://bucket/orders``)."""

    filesystem: fs.FileSystem
    root: str

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def path(self, relative: str) -> str:
        return f"{self.root}/{relative}" if relative else self.root

    def delete(self, relatives: Iterable[str]) -> None:
        """What is gone already is no fault."""
        for relative in relatives:
            try:
                self.filesystem.delete_file(self.path(relative))
            except FileNotFoundError:
                continue


def open_place(path: str) -> Place:
    """Raises ValueError for a URI that pyarrow does not know."""
    bare = path.removeprefix("file://").removeprefix("file:")
    if "://" not in bare:
        return Place(fs.LocalFileSystem(), os.path.abspath(bare))
    filesystem, root = fs.FileSystem.from_uri(path)
    return Place(filesystem, root.rstrip("/"))


def check_writable(place: Place, name: str) -> None:
    """Raises NotWritable, before any row has been read for nothing."""
    probe = place.path(f"_barnabas-{uuid.uuid4().hex}")
    try:
        place.filesystem.create_dir(place.root, recursive=True)
        with place.filesystem.open_output_stream(probe):
            pass
        place.filesystem.delete_file(probe)
    except OSError as error:
        raise NotWritable(f"the folder of the table {name} is not writable: {error}") from error


def names(place: Place, folder: str) -> list[str]:
    """What is directly in a folder, sorted."""
    selector = fs.FileSelector(place.path(folder), allow_not_found=True)
    return sorted(item.base_name for item in place.filesystem.get_file_info(selector))


def listed(place: Place, folder: str = "") -> list[tuple[str, float]]:
    """All files below a folder with the seconds of their last change, by their path in the place."""
    selector = fs.FileSelector(place.path(folder), allow_not_found=True, recursive=True)
    found = (item for item in place.filesystem.get_file_info(selector) if item.type == fs.FileType.File)
    return [(item.path[len(place.root) + 1 :], item.mtime_ns / 1e9 if item.mtime_ns else 0.0) for item in found]
