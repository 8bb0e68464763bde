"""The few things that a table needs of a file system beyond reading and writing: to create a file that must not be
there yet, to replace one whole, and to have it on the disk.

Local folders have all of them. On other file systems (``s3://``) pyarrow offers no create-if-absent, so two committers
at the same moment are not told apart there: one query per plain Parquet table is the rule.
"""

from __future__ import annotations

import contextlib
import os
import uuid

from pyarrow import fs

from barnabas.spark.tables.errors import NotWritable
from barnabas.spark.tables.files import Place
from barnabas.spark.tables.writing import sync_file


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


def read(place: Place, path: str) -> bytes | None:
    """None where there is no such file."""
    try:
        with place.filesystem.open_input_file(place.path(path)) as stream:
            found: bytes = stream.read()
            return found
    except FileNotFoundError:
        return None


def create(place: Place, path: str, content: bytes) -> bool:
    """Writes a file that is then whole and on the disk; False where it was there already."""
    target = place.path(path)
    if not place.is_local:
        if place.filesystem.get_file_info(target).type != fs.FileType.NotFound:
            return False
        _write(place, target, content)
        return True
    draft = f"{target}.{uuid.uuid4().hex}.tmp"
    _write(place, draft, content)
    sync_file(draft)
    try:
        os.link(draft, target)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    sync_file(os.path.dirname(target))
    return True


def replace(place: Place, path: str, content: bytes) -> None:
    """A reader sees the old file or the new one."""
    target = place.path(path)
    if not place.is_local:
        _write(place, target, content)
        return
    draft = f"{target}.{uuid.uuid4().hex}.tmp"
    _write(place, draft, content)
    os.replace(draft, target)


def _write(place: Place, target: str, content: bytes) -> None:
    place.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
    with place.filesystem.open_output_stream(target) as stream:
        stream.write(content)


def names(place: Place, folder: str) -> list[str]:
    """What lies directly in a folder, sorted."""
    selector = fs.FileSelector(place.path(folder), allow_not_found=True)
    return sorted(item.base_name for item in place.filesystem.get_file_info(selector))


def listed(place: Place, folder: str = "") -> list[tuple[str, float]]:
    """All files below a folder with the seconds of their last change, by their path in the place."""
    selector = fs.FileSelector(place.path(folder), allow_not_found=True, recursive=True)
    found = (item for item in place.filesystem.get_file_info(selector) if item.type == fs.FileType.File)
    return [(item.path[len(place.root) + 1 :], item.mtime_ns / 1e9 if item.mtime_ns else 0.0) for item in found]


def move(place: Place, source: str, target: str) -> bool:
    """False where the source is not there: somebody else has moved it."""
    goal = place.path(target)
    place.filesystem.create_dir(goal.rpartition("/")[0], recursive=True)
    try:
        place.filesystem.move(place.path(source), goal)
    except FileNotFoundError:
        return False
    return True


def sync_folders(place: Place, paths: list[str]) -> None:
    """So that what was moved there stays there when the power goes."""
    if place.is_local:
        for folder in {os.path.dirname(place.path(path)) for path in paths}:
            with contextlib.suppress(FileNotFoundError):
                sync_file(folder)


def prune(place: Place, folder: str) -> None:
    """Takes empty folders away, from the innermost out, down to this one. Object stores have none."""
    if not place.is_local:
        return
    for path, _, _ in os.walk(place.path(folder), topdown=False):
        with contextlib.suppress(OSError):  # not empty, or not there any more
            os.rmdir(path)


def delete_folder(place: Place, folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        place.filesystem.delete_dir(place.path(folder))
