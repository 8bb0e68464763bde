"""Which small files are put together, for formats that have no compaction of their own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

SMALL = 0.75
"""Of the size that is aimed at: larger files stay as they are."""


class Candidate(NamedTuple, Generic[T]):
    folder: Hashable
    """Only files of one partition go together."""
    bytes: int
    item: T


def plan(candidates: Iterable[Candidate[T]], target_bytes: int) -> list[list[T]]:
    """Groups of at least two, each of about the target's size, in the order given."""
    open_groups: dict[Hashable, tuple[list[T], int]] = {}
    full: list[list[T]] = []
    for folder, size, item in candidates:
        if size >= target_bytes * SMALL:
            continue
        group, total = open_groups.get(folder, ([], 0))
        if total + size > target_bytes and group:
            full.append(group)
            group, total = [], 0
        open_groups[folder] = [*group, item], total + size
    return [group for group in [*full, *(group for group, _ in open_groups.values())] if len(group) > 1]
