"""Shortens a log: at its start by retention and DeleteRecords, at its end by truncation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import DiskError
from barnabas.storage.loader import rebuild_producers
from barnabas.storage.segment import Segment

if TYPE_CHECKING:
    from barnabas.storage.log import Log


REMOVE_AGAIN_MS = 60_000
"""Later, where files of deleted segments and partitions cannot be removed now."""


def delete_records_before(log: Log, offset: int, now_ms: int) -> int:
    log.check_online()
    if offset > log.log_end_offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} lies beyond the log's end {log.log_end_offset}")
    if offset > log.log_start_offset:
        _start_at(log, offset)
        delete_before_start(log, now_ms)
    return log.log_start_offset


def delete_old_segments(log: Log, now_ms: int, stable_offset: int) -> int:
    log.check_online()
    count = 0
    settings = log.settings
    if settings.deletes:
        if settings.retention_ms >= 0:
            oldest_ms = now_ms - settings.retention_ms
            count += _delete_while(log, now_ms, stable_offset, lambda s: s.largest_timestamp() < oldest_ms)
        if settings.retention_bytes >= 0:
            surplus = log.size_bytes - settings.retention_bytes

            def is_surplus(segment: Segment) -> bool:
                nonlocal surplus
                surplus -= segment.size
                return surplus >= 0

            count += _delete_while(log, now_ms, stable_offset, is_surplus)
    return count + delete_before_start(log, now_ms)


def delete_before_start(log: Log, now_ms: int) -> int:
    start = log.log_start_offset
    return _delete_while(log, now_ms, start, lambda segment: segment.next_offset <= start)


def _delete_while(log: Log, now_ms: int, stable_offset: int, condition: Callable[[Segment], bool]) -> int:
    """Deletes from the oldest segment on, below the last stable offset, while the condition holds.

    None while the cleaner is at work on the log: what is due is still due when it has finished.
    """
    if log.is_being_cleaned:
        return 0
    count = 0
    for segment in log.segments:
        if not segment.size and segment is log.active:
            break
        if segment.next_offset > stable_offset or not condition(segment):
            break
        count += 1
    if count == len(log.segments) and not _has_rolled(log, now_ms):
        count -= 1
    if count and log.segments[count] is log.active and not log.active.size and log.active.unsynced_entry:
        # All that will say where the log ends is the name of an empty file, which is not on the disk yet.
        count -= 1
        _start_at(log, log.active.base_offset)
    if count:
        try:
            _delete_first(log, count, now_ms)
        except DiskError as error:
            raise log.fail(f"segments could not be deleted: {error}") from error
    return count


def _has_rolled(log: Log, now_ms: int) -> bool:
    """Rolls to an empty segment; False if the disk is full, until other segments are deleted."""
    try:
        log.roll(now_ms)
    except DiskError:
        return False
    return True


def _start_at(log: Log, offset: int) -> None:
    log.log_start_offset = max(log.log_start_offset, offset)
    log.epochs.truncate_from_start(log.log_start_offset)


def _delete_first(log: Log, count: int, now_ms: int) -> None:
    remove_at_ms = now_ms + log.settings.file_delete_delay_ms
    doomed = log.segments[:count]
    del log.segments[:count], log.bases[:count]
    for segment in doomed:
        log.doomed += [(remove_at_ms, path) for path in segment.mark_deleted()]
    _start_at(log, log.bases[0])
    log.snapshots.remove_outside(log.bases[0] - 1, log.log_end_offset)
    if log.flushed_offset < log.bases[0]:
        log.active.note_new_name()  # the next flush syncs the folder, and so makes the removal durable
    log.forget_places()


def remove_deleted_files(log: Log, now_ms: int) -> int:
    """Raises DiskError when it has been through all; what could not be removed is tried again later."""
    due = [path for remove_at_ms, path in log.doomed if remove_at_ms <= now_ms]
    log.doomed = [entry for entry in log.doomed if entry[0] > now_ms]
    problem: DiskError | None = None
    for path in due:
        try:
            log.disk.remove(path)
        except DiskError as error:
            log.doomed.append((now_ms + REMOVE_AGAIN_MS, path))
            problem = problem or error
    if problem is not None:
        raise problem
    return len(log.doomed)


def truncate_to(log: Log, offset: int) -> bool:
    log.check_online()
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(offset)  # an epoch without records may begin here that the leader does not have
        return False
    if offset < log.bases[0]:
        truncate_fully_and_start_at(log, offset)
        return True
    try:
        _cut_tail(log, offset)
        log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
        log.epochs.truncate_from_end(log.log_end_offset)
        rebuild_producers(log)
    except DiskError as error:
        raise log.fail(f"truncation to {offset} failed: {error}") from error
    return True


def _cut_tail(log: Log, offset: int) -> None:
    while log.bases[-1] >= offset and len(log.segments) > 1:
        log.segments.pop().remove()
        log.bases.pop()
    active = log.active
    active.next_offset = max(active.next_offset, offset)
    found = active.position_of(offset)
    if found is not None:
        offset = max(min(offset, found[1].base_offset), active.base_offset)
    active.truncate_to(offset)
    active.next_offset = offset
    _cut_bookkeeping(log, offset)


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    log.check_online()
    try:
        for segment in reversed(log.segments):
            segment.remove()
        log.segments.clear()
        log.bases.clear()
        log.add_segment(offset, log.now_ms)
        log.epochs.clear()
        log.producers.clear(offset)
        log.snapshots.remove_outside(-1, -1)
    except DiskError as error:
        raise log.fail(f"truncation to {offset} failed: {error}") from error
    log.log_start_offset = offset
    _cut_bookkeeping(log, offset)


def _cut_bookkeeping(log: Log, end_offset: int) -> None:
    log.log_end_offset = end_offset
    log.flushed_offset = min(log.flushed_offset, end_offset)
    if log.cleaned_offset is not None:
        log.cleaned_offset = min(log.cleaned_offset, end_offset)
    log.truncations += 1
    log.is_stored = False
    log.forget_places()
