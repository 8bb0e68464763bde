"""The aborted transactions of a segment: what a read_committed consumer must skip.

Kafka's format: version, producer id, first offset, last offset, and the last stable offset when it was written.
The file appears with the first abort; most segments never have one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.model.ports import Disk, File, FileMissing

_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Entries are few, so they are kept in memory once they have been asked for."""

    __slots__ = ("_disk", "_entries", "_file", "changes", "path", "synced_changes")

    def __init__(self, disk: Disk, path: str, *, exists: bool) -> None:
        self._disk = disk
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = None if exists else []
        self.changes = 0  # since it was opened
        self.synced_changes = 0
        self.path = path

    @property
    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            try:
                content = self._disk.read_file(self.path)
            except FileMissing:
                content = b""
            whole = len(content) - len(content) % _ENTRY.size
            self._entries = [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(content[:whole])]
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        entries = self.entries
        self.changes += 1
        self._open().write([_ENTRY.pack(0, *entry)], len(entries) * _ENTRY.size)
        entries.append(entry)

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
        """Adds what overlaps the range; True where no later segment can have more."""
        for entry in self.entries:
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) < len(self.entries):
            self.changes += 1
            self._open().truncate(len(kept) * _ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        self.close()
        self._disk.remove(self.path)
        self._entries = []

    def file(self) -> File | None:
        """The file to sync, where there is one."""
        return self._open() if self._entries is None or self._entries else None

    def unsynced_file(self) -> File | None:
        """Where changes are not known to be synced: no scan of later segments would find them again."""
        return self._open() if self.changes > self.synced_changes else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        return self._file
