"""Making a log durable: which files a flush has to sync, and what a clean close leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.ports import File
from barnabas.storage.checkpoints import PARTITION_METADATA
from barnabas.storage.segment import Segment

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class FlushTask(NamedTuple):
    """Files to sync; when all are, ``Log.finish_flush`` moves the recovery point to ``up_to_offset``."""

    files: list[File]
    up_to_offset: int
    sizes: list[tuple[Segment, int]]
    truncations: int
    begun_ms: int


def begin(log: Log) -> FlushTask:
    files: list[File] = []
    sizes: list[tuple[Segment, int]] = []
    new_entries = False
    for segment in reversed(log.segments):
        closed = segment is not log.active
        if closed and segment.next_offset <= log.flushed_offset:
            break
        if closed:
            files += segment.files()
        elif segment.size > segment.synced_size:
            files.append(segment.open_log())  # its indexes can be rebuilt: it holds the recovery point
        sizes.append((segment, segment.size))
        new_entries |= segment.unsynced_entry and segment.size > 0
    log.epochs.store(sync=True)
    if new_entries:
        sync_entries(log)
    return FlushTask(files, log.log_end_offset, sizes, log.truncations, log.now_ms)


def sync_entries(log: Log) -> None:
    """Makes the names of the segments' files durable, and of a new partition its folder and topic id."""
    if log.parent_unsynced:
        if log.topic_id is not None:
            log.disk.open(f"{log.directory}/{PARTITION_METADATA}").sync()
        log.disk.sync_directory(log.directory.rpartition("/")[0])
        log.parent_unsynced = False
    log.disk.sync_directory(log.directory)
    for segment in log.segments:
        segment.unsynced_entry = False


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
