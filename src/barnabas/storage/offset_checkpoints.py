"""The offset checkpoint files of a data folder: recovery points, log start offsets, high watermarks, cleaner offsets.

Kafka's files name a partition by topic and number, not by topic id, so an entry must not outlive its log.
``discard_absent`` removes the entries of deleted partitions before a new log of the same name is made. Until that is
durable, a mark in the new log's folder says that entries of its name are not its own (``LogDirectory``).

``store`` replaces the files without blocking: each is written aside and synced off the loop, then renamed. A rewrite
meanwhile makes what was written aside obsolete.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from barnabas.model.ids import TopicPartition
from barnabas.model.ports import Disk, DiskError
from barnabas.storage import checkpoints
from barnabas.storage.damage import Report
from barnabas.storage.durable_files import replace_files

NAMES = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)

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
        self._storing: Mapping[str, Offsets] | None = None
        """The checkpoints being stored; obsolete if there is a rewrite meanwhile."""
        self._rewrites = 0
        self._unsynced: set[str] = set()
        """Files that were rewritten without a sync."""
        self._next: tuple[Callable[[], Mapping[str, Offsets]], Callable[[], None]] | None = None

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
        """Whether a file has an entry of the partition, or may soon have."""
        contents = (*self._stored.values(), *(self._storing or {}).values())
        return any(partition in offsets for offsets in contents)

    def discard_absent(self, present: Container[TopicPartition]) -> None:
        """Rewrites, without a sync, the files that hold other partitions than ``present``."""
        self._rewrites += 1
        for name, offsets in self._stored.items():
            kept = {partition: offset for partition, offset in offsets.items() if partition in present}
            if len(kept) < len(offsets):
                self.write(name, kept, sync=False)

    def write(self, name: str, offsets: Offsets, *, sync: bool) -> None:
        """Replaces a file here and now."""
        self._rewrites += 1
        checkpoints.write_offsets(self._disk, self._path(name), offsets, sync=sync)
        self._stored[name] = offsets
        if not sync:
            self._unsynced.add(name)

    def store(self, contents: Callable[[], Mapping[str, Offsets]], then: Callable[[], None]) -> None:
        """Replaces the files whose content has changed, without blocking; calls ``then`` when all are durable."""
        if self._storing is not None:
            self._next = contents, then
            return
        changed = {
            name: offsets
            for name, offsets in contents().items()
            if offsets != self._stored[name] or name in self._unsynced
        }
        if not changed:
            then()
            return
        self._storing = changed
        rewrites = self._rewrites

        def stored(problem: DiskError | None) -> None:
            self._storing = None
            if problem is not None:
                self._unsynced.update(changed)  # nobody knows what the files hold now
                self._report("the checkpoints could not be written", folder=self._folder, reason=str(problem))
            elif rewrites == self._rewrites:
                self._unsynced.difference_update(changed)
                then()
            if self._next is not None:
                following, self._next = self._next, None
                self.store(*following)

        def is_wanted() -> bool:
            """Unless a rewrite has made it obsolete."""
            if rewrites == self._rewrites:
                self._stored.update(changed)
            return rewrites == self._rewrites

        formatted = {name: checkpoints.format_offsets(offsets) for name, offsets in changed.items()}
        replace_files(self._disk, self._folder, formatted, stored, is_wanted=is_wanted)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
