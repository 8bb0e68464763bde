"""Which offsets of a partition a table has, in a few numbers however long the table lives.

An interval is *dense* where every offset in it is in the table, or known to belong to no record: then an offset in it
is there, without a look. Otherwise it may be there, and the table itself has to be asked. Intervals are therefore free
to be joined where they become too many: what is lost is only the saving of a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from barnabas.model.ids import TopicPartition
from barnabas.spark.tables.checksum import Checksum, add
from barnabas.spark.tables.runs import Offsets

MAX_INTERVALS = 64
"""Of one partition and one writer."""


class Interval(NamedTuple):
    start: int
    end: int
    """Exclusive."""
    rows: int
    dense: bool
    checksum: Checksum | None
    """Of the rows; None where that is not known."""


Intervals: TypeAlias = tuple[Interval, ...]
"""Sorted and disjoint."""

Coverage: TypeAlias = dict[TopicPartition, Intervals]


def insert(intervals: Intervals, new: Interval, limit: int = MAX_INTERVALS) -> Intervals:
    """With ``new`` in its place: joined with what it overlaps, and with neighbours of its kind."""
    before = [item for item in intervals if item.end < new.start]
    after = [item for item in intervals if item.start > new.end]
    kept: list[Interval] = []
    for item in intervals[len(before) : len(intervals) - len(after)]:
        if _is_apart(item, new):
            kept.append(item)
        else:
            new = _join(item, new)
    return _limited(sorted([*before, *kept, new, *after], key=_place), limit)


def join_all(parts: Iterable[Intervals], limit: int = MAX_INTERVALS) -> Intervals:
    found: Intervals = ()
    for part in parts:
        for item in part:
            found = insert(found, item, limit)
    return found


def merge_coverage(parts: Iterable[Coverage]) -> Coverage:
    merged: Coverage = {}
    for part in parts:
        for partition, intervals in part.items():
            merged[partition] = join_all([merged.get(partition, ()), intervals])
    return merged


def _place(item: Interval) -> tuple[int, int]:
    return item.start, item.end


def _is_apart(item: Interval, new: Interval) -> bool:
    """Neighbours that touch, but of which one is dense or hashed and the other is not."""
    touch = item.end == new.start or new.end == item.start
    return touch and (item.dense != new.dense or _columns(item) != _columns(new))


def _columns(item: Interval) -> str | None:
    return None if item.checksum is None else item.checksum.columns


def _join(one: Interval, other: Interval) -> Interval:
    first, second = sorted((one, other), key=_place)
    if first.end == second.start:
        dense = first.dense and second.dense
    elif first.end > second.start:
        dense = _overlap_is_dense(first, second)
    else:
        dense = False
    checksum = add(first.checksum, second.checksum)
    return Interval(first.start, max(first.end, second.end), first.rows + second.rows, dense, checksum)


def _overlap_is_dense(first: Interval, second: Interval) -> bool:
    if first.dense and second.dense:
        return True
    inside = second.end <= first.end
    return first.dense if inside else second.dense and first.start == second.start


def _limited(intervals: list[Interval], limit: int) -> Intervals:
    """Too many: the two with the least between them, and of those the shortest, become one to be looked into."""
    while len(intervals) > limit:
        costs = [(second.start - first.end, second.end - first.start) for first, second in pairwise(intervals)]
        at = costs.index(min(costs))
        intervals[at : at + 2] = [_join(intervals[at], intervals[at + 1])]
    return tuple(intervals)


def within(intervals: Sequence[Interval], offsets: Offsets) -> Any:
    """Which offsets lie in some interval."""
    if not intervals or not len(offsets):
        return np.zeros(len(offsets), bool)
    starts = np.array([item.start for item in intervals], np.int64)
    ends = np.array([item.end for item in intervals], np.int64)
    places = np.searchsorted(starts, offsets, side="right") - 1
    return (places >= 0) & (offsets < ends[np.maximum(places, 0)])


def dense_only(intervals: Sequence[Interval]) -> list[Interval]:
    return [item for item in intervals if item.dense]


def overlaps(intervals: Sequence[Interval], start: int, end: int) -> list[Interval]:
    return [item for item in intervals if item.start < end and start < item.end]


def end_before(intervals: Sequence[Interval], offset: int) -> int | None:
    """Where the last interval that begins before ``offset`` ends, at most there."""
    ends = [min(item.end, offset) for item in intervals if item.start < offset]
    return max(ends) if ends else None
