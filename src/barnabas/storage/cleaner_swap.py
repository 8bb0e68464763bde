"""Swaps a cleaned segment into its log, on the loop: only renames, nothing that waits for the disk.

After a crash at any point the log is either the old one or the new one. First ``.cleaned`` becomes ``.swap``, file by
file: while one is still ``.cleaned``, the loader deletes them all. Once the folder is synced (elsewhere), the new
segment is final, and the old segments are renamed to ``.deleted``; readers that have them open are not disturbed. Last
the new files get the names of the first segment, the log first: the loader removes indexes beside a ``.log.swap``, and
aborted transactions cannot be rebuilt from a cleaned log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.model.ports import DiskError
from barnabas.storage.cleaner_output import CleanedSegment
from barnabas.storage.cleaner_plan import Source
from barnabas.storage.loader import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.storage.segment import Segment

if TYPE_CHECKING:
    from barnabas.storage.log import Log


def find_segments(log: Log, sources: Sequence[Source]) -> list[Segment] | None:
    """The log's segments that the sources stood for; None where the log has changed under the cleaning."""
    start = bisect_left(log.bases, sources[0].base_offset)
    found = log.segments[start : start + len(sources)]
    if log.offline is not None or log.active in found or len(found) < len(sources):
        return None
    same = all(
        (segment.name, segment.size, segment.next_offset) == (source.name, source.size, source.next_offset)
        for segment, source in zip(found, sources, strict=True)
    )
    return found if same else None


def begin_swap(log: Log, cleaned: CleanedSegment) -> None:
    """From here on a sync of the folder makes the cleaned segment the log."""
    for suffix in cleaned.suffixes:
        path = cleaned.name + suffix
        log.disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)


def undo_swap(log: Log, cleaned: CleanedSegment) -> None:
    """The log has changed meanwhile. The same way back, so that no crash on it can make half of a segment the log."""
    for suffix in cleaned.suffixes:
        path = cleaned.name + suffix
        if log.disk.exists(path + SWAP_SUFFIX):
            log.disk.rename(path + SWAP_SUFFIX, path + CLEANED_SUFFIX)
    for suffix in cleaned.suffixes:
        log.disk.remove(cleaned.name + suffix + CLEANED_SUFFIX)


def finish_swap(log: Log, old: Sequence[Segment], cleaned: CleanedSegment, now_ms: int) -> None:
    """Replaces the segments. Raises LogOffline where a rename failed."""
    try:
        _rename(log, old, cleaned, now_ms)
    except DiskError as error:
        raise log.fail(f"a cleaned segment could not be swapped in: {error}") from error
    segment = _make_segment(log, old, cleaned)
    start = bisect_left(log.bases, cleaned.base_offset)
    log.segments[start : start + len(old)] = [segment]
    log.bases[start : start + len(old)] = [segment.base_offset]


def _rename(log: Log, old: Sequence[Segment], cleaned: CleanedSegment, now_ms: int) -> None:
    remove_at_ms = now_ms + log.settings.file_delete_delay_ms
    paths = [path for segment in old for path in segment.mark_deleted()]
    again = set(paths)  # a cleaning a moment ago may have left files of the same names, which are replaced now
    log.doomed = [entry for entry in log.doomed if entry[1] not in again]
    log.doomed += [(remove_at_ms, path) for path in paths]
    for suffix in cleaned.suffixes:
        path = cleaned.name + suffix
        log.disk.rename(path + SWAP_SUFFIX, path)
    for segment in old[1:]:
        log.snapshots.remove(segment.base_offset)


def _make_segment(log: Log, old: Sequence[Segment], cleaned: CleanedSegment) -> Segment:
    segment = Segment(
        log.disk,
        log.directory,
        cleaned.base_offset,
        created_ms=old[-1].created_ms,
        index_interval_bytes=log.settings.index_interval_bytes,
        stored=True,
    )
    segment.size = segment.synced_size = cleaned.size
    segment.next_offset = old[-1].next_offset
    segment.max_timestamp = cleaned.max_timestamp
    segment.offset_of_max_timestamp = cleaned.offset_of_max_timestamp
    return segment
