"""Durability of a log: which files a flush has to sync, and what a clean close writes.

A flush makes these durable, in this order: the data of its files and of the temporary epoch checkpoint; then the name
of the checkpoint and the names of new files and of a new partition's folder. Syncs run off the loop, renames on it.
What the loop does meanwhile (a new epoch, a new segment, a truncation) is left to the next flush: a task records the
state at its beginning and marks nothing else as synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.ports import DiskError, File
from barnabas.storage.checkpoints import PARTITION_METADATA
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class FlushFile(NamedTuple):
    file: File
    segment: Segment | None = None

    @property
    def is_gone(self) -> bool:
        """Retention, DeleteRecords, truncation or the cleaner has removed the segment since the flush began."""
        return self.segment is not None and self.segment.removed


class FlushTask(NamedTuple):
    """Files to sync, then ``Log.name_epochs``, then folders to sync.

    When all that is done, ``Log.finish_flush`` moves the recovery point to ``up_to_offset``.
    """

    files: list[FlushFile]
    folders: list[str]
    up_to_offset: int
    sizes: list[tuple[Segment, int]]
    namings: list[tuple[Segment, int]]
    """Of segments whose names the folders' sync covers, how many namings there were."""
    aborted: list[tuple[TransactionIndex, int]]
    """Of indexes of aborted transactions among the files, how many changes there were."""
    small_files: list[File]
    """The files that can be closed afterwards."""
    epoch_changes: int | None
    """What the epochs written aside have; None where the stored ones are those in force."""
    with_parent: bool
    truncations: int
    begun_ms: int


def begin(log: Log) -> FlushTask:
    files: list[FlushFile] = []
    sizes: list[tuple[Segment, int]] = []
    aborted: list[tuple[TransactionIndex, int]] = []
    new_entries = False
    for segment in reversed(log.segments):
        closed = segment is not log.active
        if closed and segment.next_offset <= log.flushed_offset:
            break
        if closed:
            files += [FlushFile(file, segment) for file in segment.files()]
        elif segment.size > segment.synced_size:
            # The other indexes can be rebuilt: it holds the recovery point. Once it is closed, it may not any more.
            index = segment.transaction_index.unsynced_file()
            files += [FlushFile(file, segment) for file in (segment.open_log(), index) if file is not None]
        sizes.append((segment, segment.size))
        aborted.append((segment.transaction_index, segment.transaction_index.changes))
        new_entries |= segment.unsynced_entry and segment.has_file
    names = begin_naming(log) if new_entries else None
    epoch_changes = None if log.epochs.is_stored else log.epochs.changes
    small_files = names.small_files if names else []
    if epoch_changes is not None:
        small_files.append(log.epochs.write_aside())
    folders = names.folders if names else [log.directory] if epoch_changes is not None else []
    return FlushTask(
        files=[*files, *map(FlushFile, small_files)],
        folders=folders,
        up_to_offset=log.log_end_offset,
        sizes=sizes,
        namings=names.namings if names else [],
        aborted=aborted,
        small_files=small_files,
        epoch_changes=epoch_changes,
        with_parent=names is not None and names.with_parent,
        truncations=log.truncations,
        begun_ms=log.now_ms,
    )


def begin_naming(log: Log) -> FlushTask:
    """The names alone: of the segments' files, and of a new partition those of its folder and of its topic id."""
    with_parent = log.parent_unsynced
    folders = [log.directory]
    small_files: list[File] = []
    if with_parent:
        folders.append(log.directory.rpartition("/")[0])
        if log.topic_id is not None:
            small_files.append(log.disk.open(f"{log.directory}/{PARTITION_METADATA}"))
    return FlushTask(
        files=[*map(FlushFile, small_files)],
        folders=folders,
        up_to_offset=log.flushed_offset,
        sizes=[],
        namings=[(segment, segment.namings) for segment in log.segments if segment.has_file],
        aborted=[],
        small_files=small_files,
        epoch_changes=None,
        with_parent=with_parent,
        truncations=log.truncations,
        begun_ms=log.now_ms,
    )


def name_epochs(log: Log, task: FlushTask) -> None:
    """The epochs written aside are synced and take their place, unless they are out of date by now."""
    for file in task.small_files:
        file.close()
    is_newer = task.epoch_changes is not None and task.epoch_changes > log.epochs.stored_changes
    if is_newer and task.truncations == log.truncations:
        log.epochs.put_in_place()


def sync_here(log: Log, task: FlushTask) -> DiskError | None:
    """Does all of the task at once, waiting for the disk; returns what failed."""
    try:
        for item in task.files:
            if not item.is_gone:
                item.file.sync()
        log.name_epochs(task)
        for folder in task.folders:
            log.disk.sync_directory(folder)
    except DiskError as problem:
        return problem
    return None


def finish(log: Log, task: FlushTask) -> None:
    for segment, size in task.sizes:
        segment.synced_size = max(segment.synced_size, size)
    for segment, namings in task.namings:
        segment.synced_namings = max(segment.synced_namings, namings)
    for index, changes in task.aborted:
        index.synced_changes = max(index.synced_changes, changes)
    if task.epoch_changes is not None:
        log.epochs.stored(task.epoch_changes)
    if task.with_parent:
        log.parent_unsynced = False
    has_lost_files = any(segment.removed for segment, _ in task.sizes)
    if has_lost_files and log.active.unsynced_entry:
        return  # until the folder is synced, a crash could bring the removed files back, with torn content
    if task.up_to_offset > log.flushed_offset:
        log.flushed_offset = task.up_to_offset
        log.oldest_unflushed_ms = task.begun_ms


def store_all(log: Log) -> None:
    """Indexes and producers as a clean start expects them; nothing where nothing was written since the last."""
    nothing_new = log.is_stored and log.flushed_offset == log.log_end_offset
    if nothing_new or (log.log_end_offset == log.log_start_offset and not log.active.size):
        log.epochs.store(sync=False)  # an epoch without records: if it is lost, the next start has a higher one anyway
        return
    log.producers.end_offset = log.log_end_offset
    if log.active.size:
        log.active.seal()
    if log.log_end_offset > log.log_start_offset:
        log.snapshots.take(log.producers)
    log.flush()  # the folder with it: sealing has left new names
    for file in log.active.files()[1:] if log.active.size else ():
        file.sync()
    log.snapshots.sync_latest()
    log.is_stored = True
