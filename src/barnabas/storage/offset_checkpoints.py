"""The offset checkpoint files of a data folder: recovery points, log start offsets, high watermarks, cleaner offsets.

Kafka's files name a partition by topic and number, not by topic id. An entry must therefore never outlive its log:
``discard_absent`` removes the entries of deleted partitions before a new log of the same name is written, and the new
log's first flush syncs the rewritten files before it syncs the folder that names the log. So a log that survives a
crash is found beside checkpoints that know only of it.

``store`` replaces the files without blocking: each is written aside and synced off the loop, then renamed. A rewrite
by ``discard_absent`` or ``write`` meanwhile makes what was written aside obsolete; the next ``store`` writes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from barnabas.model.ids import TopicPartition
from barnabas.model.ports import Disk, DiskError
from barnabas.storage import checkpoints
from barnabas.storage.damage import Report

NAMES = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)
ASIDE_SUFFIX = ".next"

CONSEQUENCES = {
    checkpoints.RECOVERY_POINTS: "every segment is checked",
    checkpoints.LOG_START_OFFSETS: "records that DeleteRecords removed may be visible again",
    checkpoints.HIGH_WATERMARKS: "high watermarks start at the beginning of the logs",
    checkpoints.CLEANER_OFFSETS: "compacted logs are cleaned from their beginning",
}

Offsets = Mapping[TopicPartition, int]


class OffsetCheckpoints:
    def __init__(self, disk: Disk, folder: str, report: Report) -> None:
        self._disk = disk
        self._folder = folder
        self._report = report
        self._stored: dict[str, Offsets] = {name: {} for name in NAMES}
        """What each file holds."""
        self._rewrites = 0
        self._storing = False
        self._next: Callable[[], Mapping[str, Offsets]] | None = None

    def __getitem__(self, name: str) -> Offsets:
        return self._stored[name]

    def load(self) -> list[str]:
        """Reads the files; returns the names of those that are damaged, whose entries are lost."""
        damaged = []
        for name in NAMES:
            path = self._path(name)
            try:
                self._stored[name] = checkpoints.read_offsets(self._disk, path)
            except checkpoints.MalformedCheckpoint as problem:
                damaged.append(name)
                self._report(f"a checkpoint is damaged: {CONSEQUENCES[name]}", file=path, reason=str(problem))
        return damaged

    def holds(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self._stored.values())

    def discard_absent(self, present: Container[TopicPartition]) -> list[str]:
        """Rewrites, without a sync, the files that hold other partitions than ``present``; returns their paths."""
        paths = []
        for name, offsets in self._stored.items():
            kept = {partition: offset for partition, offset in offsets.items() if partition in present}
            if len(kept) < len(offsets):
                self.write(name, kept, sync=False)
                paths.append(self._path(name))
        return paths

    def write(self, name: str, offsets: Offsets, *, sync: bool) -> None:
        """Replaces a file here and now."""
        self._rewrites += 1
        checkpoints.write_offsets(self._disk, self._path(name), offsets, sync=sync)
        self._stored[name] = offsets

    def store(self, contents: Callable[[], Mapping[str, Offsets]]) -> None:
        """Replaces the files whose content has changed, durably and without blocking."""
        if self._storing:
            self._next = contents
            return
        changed = {name: offsets for name, offsets in contents().items() if offsets != self._stored[name]}
        if changed:
            self._storing = True
            _Store(self._disk, self._folder, changed, self._rewrites, self._put_in_place, self._stored_all).begin()

    def _put_in_place(self, changed: Mapping[str, Offsets], rewrites: int) -> bool:
        """Renames what was written aside, unless it is obsolete."""
        if rewrites != self._rewrites:
            return False
        for name, offsets in changed.items():
            self._disk.rename(self._path(name) + ASIDE_SUFFIX, self._path(name))
            self._stored[name] = offsets
        return True

    def _stored_all(self, problem: DiskError | None) -> None:
        self._storing = False
        if problem is not None:
            self._report("the checkpoints could not be written", folder=self._folder, reason=str(problem))
        following, self._next = self._next, None
        if following is not None:
            self.store(following)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


class _Store:
    """One replacement: write aside, sync, rename, sync the folder."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        changed: Mapping[str, Offsets],
        rewrites: int,
        put_in_place: Callable[[Mapping[str, Offsets], int], bool],
        then: Callable[[DiskError | None], None],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._changed = changed
        self._rewrites = rewrites
        self._put_in_place = put_in_place
        self._then = then
        self._unsynced = list(changed)

    def begin(self) -> None:
        try:
            for name, offsets in self._changed.items():
                checkpoints.write_offsets(self._disk, f"{self._folder}/{name}{ASIDE_SUFFIX}", offsets, sync=False)
        except DiskError as problem:
            self._then(problem)
            return
        self._sync_next(None)

    def _sync_next(self, problem: DiskError | None) -> None:
        try:
            if problem is not None:
                raise problem
            if self._unsynced:
                file = self._disk.open(f"{self._folder}/{self._unsynced.pop()}{ASIDE_SUFFIX}")
                self._disk.sync(file, self._sync_next)
            elif self._put_in_place(self._changed, self._rewrites):
                self._disk.sync_names(self._folder, self._then)
            else:
                self._then(None)
        except DiskError as failure:
            self._then(failure)
