"""Cleans a log as the broker does, in one thread; shared by the cleaner's tests."""

from __future__ import annotations

from typing import Any

from barnabas.storage.cleaner import Cleaning
from barnabas.storage.cleaner_plan import dirty_range, make_plan
from barnabas.storage.cleaner_swap import begin_swap, find_segments, finish_swap
from barnabas.storage.log import Log
from barnabas.storage.offset_map import new_map
from barnabas.wire.batch import BatchHeader, iterate
from tests.unit.storage.kit import NOW, small


def compacted(**settings: Any) -> Any:
    return small(**{"cleanup_policy": ("compact",), **settings})


def begin(
    log: Log, cleaned_up_to: int | None = None, *, now_ms: int = NOW, capacity: int = 1000, chunk_bytes: int = 4096
) -> Cleaning | None:
    dirty = dirty_range(log, cleaned_up_to, log.last_stable_offset(log.log_end_offset), now_ms)
    if dirty is None:
        return None
    plan = make_plan(log, dirty, now_ms)
    return Cleaning(plan, log.disk, new_map(capacity, bytes(16)), chunk_bytes=chunk_bytes, throttle=lambda _: None)


def clean(log: Log, cleaned_up_to: int | None = None, **arguments: Any) -> int:
    """Cleans what can be; returns the offset up to which the log is clean then."""
    cleaning = begin(log, cleaned_up_to, **arguments)
    if cleaning is None:
        return log.log_start_offset if cleaned_up_to is None else cleaned_up_to
    cleaning.build_map()
    for group in cleaning.groups:
        cleaning.clean_group(group)
        old = find_segments(log, group)
        assert old is not None
        assert cleaning.cleaned is not None
        begin_swap(log, cleaning.cleaned)
        cleaning.sync_folder()
        finish_swap(log, old, cleaning.cleaned, cleaning.plan.now_ms)
    return cleaning.end_offset


def roll(log: Log, now_ms: int = NOW) -> None:
    """Closes the active segment, and flushes, as the broker does when a segment has rolled."""
    if log.active.size:
        log.roll(now_ms)
    log.flush()


def headers(log: Log) -> list[BatchHeader]:
    found = []
    for segment in log.segments:
        data = segment.open_log().read(segment.size, 0)
        found += [header for _, header in iterate(data)]
    return found
