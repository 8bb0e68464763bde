"""The start offset of each leader epoch, by which a follower finds where its log diverged (KIP-101, KIP-279).

Kafka's file ``leader-epoch-checkpoint``. It is written when the log is flushed or closed: epochs of records after the
recovery point are rebuilt from the batches. A flush writes a temporary file, syncs it off the loop, and renames it.
Epochs may be added meanwhile, so changes are counted, not flagged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from barnabas.model.ids import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.model.ports import Disk, File, FileMissing
from barnabas.storage.checkpoints import MalformedCheckpoint, format_lines, parse_lines

FILE_NAME = "leader-epoch-checkpoint"
ASIDE_SUFFIX = ".tmp"


class EpochCache:
    """Two columns, both strictly ascending."""

    __slots__ = ("_disk", "_epochs", "_starts", "changes", "latest", "path", "stored_changes")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.path = f"{directory}/{FILE_NAME}"
        self.changes = 0
        self.stored_changes = 0  # how many of them the file on the disk has
        self.latest = NO_LEADER_EPOCH

    def load(self) -> bool:
        """False where the file is missing or damaged: the epochs have to be found in the log."""
        try:
            rows = parse_lines(self._disk.read_file(self.path), 2)
            entries = [(int(epoch), int(start)) for epoch, start in rows]
        except FileMissing:
            return False
        except (MalformedCheckpoint, ValueError):
            return False
        for epoch, start in entries:
            self.assign(epoch, start)
        self.stored(self.changes)
        return True

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """A new epoch drops whatever contradicts it: entries that are newer, or begin later."""
        if leader_epoch < 0 or (leader_epoch == self.latest and self._starts[-1] <= start_offset):
            return False
        while self._epochs and (self._epochs[-1] >= leader_epoch or self._starts[-1] >= start_offset):
            del self._epochs[-1], self._starts[-1]
        self._epochs.append(leader_epoch)
        self._starts.append(start_offset)
        self._changed()
        return True

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch not beyond the asked one, where it ended)."""
        if leader_epoch == NO_LEADER_EPOCH:
            return NO_LEADER_EPOCH, NO_OFFSET
        if leader_epoch == self.latest:
            return leader_epoch, log_end_offset
        following = bisect_right(self._epochs, leader_epoch)
        if following == len(self._epochs):
            return NO_LEADER_EPOCH, NO_OFFSET
        if following == 0:
            return leader_epoch, self._starts[0]
        return self._epochs[following - 1], self._starts[following]

    def epoch_of(self, offset: int) -> int:
        """The epoch in which the record at this offset was written."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        kept = bisect_left(self._starts, end_offset)
        if kept < len(self._starts):
            del self._epochs[kept:], self._starts[kept:]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The epoch that holds the start offset stays, and begins there."""
        first = bisect_right(self._starts, start_offset) - 1
        if first < 0 or (first == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:first], self._starts[:first]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def is_stored(self) -> bool:
        return self.stored_changes == self.changes

    def store(self, *, sync: bool) -> None:
        if not self.is_stored:
            self._disk.write_file(self.path, format_lines(self.entries), sync=sync)
            self.stored(self.changes)

    def write_aside(self) -> File:
        """Writes the entries to a temporary file. The caller syncs it, calls ``put_in_place``, syncs the folder, and
        calls ``stored``."""
        file = self._disk.open(self.path + ASIDE_SUFFIX, create=True)
        file.truncate(0)
        file.write((format_lines(self.entries),), 0)
        return file

    def put_in_place(self) -> None:
        self._disk.rename(self.path + ASIDE_SUFFIX, self.path)

    def stored(self, changes: int) -> None:
        self.stored_changes = max(self.stored_changes, changes)

    def _changed(self) -> None:
        self.changes += 1
        self.latest = self._epochs[-1] if self._epochs else NO_LEADER_EPOCH
