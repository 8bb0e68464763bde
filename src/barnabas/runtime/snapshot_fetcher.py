"""Snapshots that come from the leader in parts: ``<end offset>-<epoch>.checkpoint.part`` until one is whole and sound.

A part file outlives a restart and is gone on with. What a crash has torn in it is found when the whole is checked:
every checksum, the footer, nothing behind it. Only then is it synced and renamed: a half-fetched one is never used.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.raft.events import SnapshotKey
from barnabas.model.ports import Bytes, Disk, DiskError, FileMissing
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.metadata_log import MetadataLog
from barnabas.runtime.metadata_snapshot import CorruptSnapshot, Snapshot

PART_SUFFIX = ".part"

Then = Callable[[Snapshot | Exception], None]


class SnapshotFetcher:
    def __init__(self, disk: Disk, log: MetadataLog) -> None:
        self._disk = disk
        self._log = log

    def open(self, key: SnapshotKey) -> int:
        """How much of the snapshot is here; parts of others are removed. Raises DiskError."""
        own = self._path(key)
        for name in self._disk.list(self._log.directory):
            path = f"{self._log.directory}/{name}"
            if name.endswith(PART_SUFFIX) and path != own:
                self._disk.remove(path)
        try:
            file = self._disk.open(own)
        except FileMissing:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def write(self, key: SnapshotKey, position: int, content: Bytes) -> int:
        """Returns the next position. What was behind this one is cut off. Raises DiskError."""
        file = self._disk.open(self._path(key), create=True)
        try:
            if file.size() < position:
                raise DiskError("write", self._path(key), "the part before is missing")
            file.truncate(position)
            file.write((content,), position)
        finally:
            file.close()
        return position + len(content)

    def install(self, key: SnapshotKey, then: Then) -> None:
        """Checks the file, then makes it a snapshot: synced, renamed, the folder synced. ``then`` gets its content."""
        part, whole = self._path(key), self._log.snapshot_path(key)
        try:
            snapshot = metadata_snapshot.read(self._disk, part, key.end_offset, key.raft_epoch)
        except (CorruptSnapshot, DiskError) as problem:
            self._discard(part)
            then(problem)
            return

        def synced(problem: DiskError | None) -> None:
            if problem is not None:
                self._discard(part)
                then(problem)
                return
            try:
                self._disk.rename(part, whole)
            except DiskError as failure:
                then(failure)
                return
            self._disk.sync_names(self._log.directory, named)

        def named(problem: DiskError | None) -> None:
            then(problem if problem is not None else snapshot)

        try:
            self._disk.sync(self._disk.open(part), synced)
        except DiskError as problem:
            then(problem)

    def _discard(self, path: str) -> None:
        try:
            self._disk.remove(path)
        except DiskError:
            return  # the next write cuts it

    def _path(self, key: SnapshotKey) -> str:
        return self._log.snapshot_path(key) + PART_SUFFIX
