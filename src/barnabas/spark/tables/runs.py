"""Sets of offsets as runs of neighbours, in numpy: what a file holds, what a batch holds, and the holes between."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Offsets: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class Runs(NamedTuple):
    """Sorted, disjoint, never touching: ``starts[i] <= offset < ends[i]``."""

    starts: Offsets
    ends: Offsets

    @property
    def start(self) -> int:
        return int(self.starts[0])

    @property
    def end(self) -> int:
        return int(self.ends[-1])

    @property
    def offset_count(self) -> int:
        """How many offsets there are."""
        return int((self.ends - self.starts).sum())

    def __bool__(self) -> bool:
        return len(self.starts) > 0


NOTHING = Runs(np.zeros(0, np.int64), np.zeros(0, np.int64))


def of_offsets(offsets: Offsets) -> Runs:
    """The runs of offsets in any order, some perhaps twice."""
    if not len(offsets):
        return NOTHING
    steps = np.diff(offsets)
    if (steps < 1).any():
        offsets = np.unique(offsets)
        steps = np.diff(offsets)
    breaks = np.flatnonzero(steps != 1)
    starts = offsets[np.concatenate([[0], breaks + 1])]
    ends = offsets[np.concatenate([breaks, [len(offsets) - 1]])] + 1
    return Runs(starts, ends)


def union(parts: Iterable[Runs]) -> Runs:
    """All offsets of all parts."""
    filled = [part for part in parts if part]
    if len(filled) < 2:
        return filled[0] if filled else NOTHING
    starts = np.concatenate([part.starts for part in filled])
    ends = np.concatenate([part.ends for part in filled])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    return _joined(starts, ends)


def _joined(starts: Offsets, ends: Offsets) -> Runs:
    """Neighbours that touch or overlap made one; both must go up."""
    breaks = np.flatnonzero(starts[1:] > ends[:-1])
    return Runs(starts[np.concatenate([[0], breaks + 1])], ends[np.concatenate([breaks, [len(ends) - 1]])])


def of_bounds(bounds: Iterable[tuple[int, int]]) -> Runs:
    """From pairs of start and end, in any order."""
    pairs = sorted((start, end) for start, end in bounds if start < end)
    if not pairs:
        return NOTHING
    starts, ends = np.array(pairs, np.int64).T
    return _joined(starts, np.maximum.accumulate(ends))


def bounds(runs: Runs) -> list[tuple[int, int]]:
    return list(zip(runs.starts.tolist(), runs.ends.tolist(), strict=True))


def intersect(one: Runs, other: Runs) -> Runs:
    return _pieces(one, other, both=True)


def subtract(one: Runs, other: Runs) -> Runs:
    """What is in the first and not in the second."""
    return _pieces(one, other, both=False)


def _pieces(one: Runs, other: Runs, *, both: bool) -> Runs:
    """Between two neighbouring bounds of either, all offsets have the same fate."""
    if not one or (both and not other):
        return NOTHING
    if not other:
        return one
    points = np.unique(np.concatenate([*one, *other]))
    starts, ends = points[:-1], points[1:]
    kept = contains(one, starts) & (contains(other, starts) == both)
    if not kept.any():
        return NOTHING
    starts, ends = starts[kept], ends[kept]
    return _joined(starts, ends)


def contains(runs: Runs, offsets: Offsets) -> Any:
    """Which offsets are in the runs."""
    if not runs:
        return np.zeros(len(offsets), bool)
    places = np.searchsorted(runs.starts, offsets, side="right") - 1
    return (places >= 0) & (offsets < runs.ends[np.maximum(places, 0)])


def holes(runs: Runs, start: int) -> list[tuple[int, int]]:
    """What lies between ``start`` and the end of the runs and is in none of them."""
    found = list(zip(runs.ends[:-1].tolist(), runs.starts[1:].tolist(), strict=True))
    return [(start, runs.start), *found] if start < runs.start else found


def pack(runs: Runs) -> bytes:
    """For the way from a task to the driver: steps from bound to bound, compressed."""
    bounds = np.stack([runs.starts, runs.ends], axis=1).ravel()
    return zlib.compress(np.diff(bounds, prepend=0).astype("<i8").tobytes(), 1)


def unpack(packed: bytes) -> Runs:
    bounds = np.cumsum(np.frombuffer(zlib.decompress(packed), "<i8")).reshape(-1, 2)
    return Runs(bounds[:, 0].copy(), bounds[:, 1].copy())
