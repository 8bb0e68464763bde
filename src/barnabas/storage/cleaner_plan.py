"""The plan of a cleaning: the dirty part of a log, its size, and all that a cleaning needs to know.

Plans are made on the loop, which owns the log; the cleaning (``cleaner``) sees only the plan and closed files. The
rules are those of Kafka's LogCleanerManager: never the active segment, nothing at or after the last stable offset,
nothing younger than min.compaction.lag.ms. Segments that are not synced yet are excluded too: a flush may still use
them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.settings import LONG_MAX
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class DirtyRange(NamedTuple):
    first_dirty_offset: int
    end_offset: int
    """The base offset of the first segment that may not be cleaned."""
    dirty_bytes: int
    clean_bytes: int
    is_overdue: bool
    """A dirty record is older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        total = self.dirty_bytes + self.clean_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > min_cleanable_dirty_ratio)


class Source(NamedTuple):
    """A closed segment as the cleaning sees it: a name and numbers, no open file."""

    name: str
    base_offset: int
    next_offset: int
    size: int


class LastBatch(NamedTuple):
    """What of an active producer must stay: its last data batch, or where it has none, the marker with its epoch."""

    last_offset: int
    producer_epoch: int


class CleanPlan(NamedTuple):
    directory: str
    sources: list[Source]
    first_dirty_offset: int
    end_offset: int
    aborted: list[AbortedTransaction]
    producers: dict[int, LastBatch]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int


def dirty_range(log: Log, cleaned_up_to: int | None, last_stable_offset: int, now_ms: int) -> DirtyRange | None:
    """None where nothing is dirty. ``cleaned_up_to`` is what the checkpoint says."""
    first_dirty = log.log_start_offset if cleaned_up_to is None else cleaned_up_to
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset  # records were deleted, or the end of the log was lost
    if first_dirty >= log.bases[-1]:
        return None
    begin = max(bisect_right(log.bases, first_dirty) - 1, 0)
    end = _end_index(log, begin, last_stable_offset, now_ms)
    if end <= begin:
        return None
    dirty = log.segments[begin:end]
    clean_end = begin + 1 if log.bases[begin] < first_dirty else begin
    return DirtyRange(
        first_dirty,
        log.bases[end],
        sum(segment.size for segment in dirty),
        sum(segment.size for segment in log.segments[:clean_end]),
        _is_overdue(log, dirty, now_ms),
    )


def _end_index(log: Log, begin: int, last_stable_offset: int, now_ms: int) -> int:
    """The number of the first segment, the active one at the latest, that may not be cleaned."""
    bound = min(last_stable_offset, log.flushed_offset)
    lag_ms = log.settings.min_compaction_lag_ms
    for index in range(begin, len(log.segments) - 1):
        segment = log.segments[index]
        if segment.next_offset > bound or (lag_ms > 0 and segment.largest_timestamp() > now_ms - lag_ms):
            return index
    return len(log.segments) - 1


def _is_overdue(log: Log, dirty: list[Segment], now_ms: int) -> bool:
    lag_ms = log.settings.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return False
    for segment in dirty:
        if segment.first_timestamp < 0:
            segment.load_first_timestamp()
        if 0 < segment.first_timestamp < now_ms - lag_ms:
            return True
    return False


def make_plan(log: Log, dirty: DirtyRange, now_ms: int) -> CleanPlan:
    end = bisect_right(log.bases, dirty.end_offset) - 1
    return CleanPlan(
        directory=log.directory,
        sources=[Source(one.name, one.base_offset, one.next_offset, one.size) for one in log.segments[:end]],
        first_dirty_offset=dirty.first_dirty_offset,
        end_offset=dirty.end_offset,
        aborted=sorted(set(log.aborted_transactions(log.bases[0], dirty.end_offset)), key=lambda one: one.first_offset),
        producers={
            entry.producer_id: LastBatch(entry.last_offset, entry.producer_epoch)
            for entry in log.producers.producers.values()
        },
        now_ms=now_ms,
        delete_retention_ms=log.settings.delete_retention_ms,
        segment_bytes=log.settings.segment_bytes,
        segment_index_bytes=log.settings.segment_index_bytes,
        index_interval_bytes=log.settings.index_interval_bytes,
    )
