"""Reads of a log: where a range of whole batches lies in a file, found without looking at more than its edges.

A consumer that reads on asks for the offset at which its last read ended, and the end of a read is mostly the high
watermark, which was the end of some append. Both are remembered in small bounded maps, so a sequential read costs no
index look-up; anything else is one binary search and a scan of about index.interval.bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.model.ports import File
from barnabas.storage.segment import Segment

RECENT_ENDS = 64
"""Read ends remembered for each log: about as many as it has sequential readers."""


class FileRange:
    """Whole batches in a file, to be sent from the page cache."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def read(self) -> bytes:
        return self.file.read(self.size, self.position)

    def __len__(self) -> int:
        return self.size


class ReadResult(NamedTuple):
    """``next_offset`` is where the following read begins; equal to the offset asked for where nothing was found."""

    records: FileRange | None
    first_offset: int
    """The base offset of the first batch, which may lie before the offset asked for."""
    next_offset: int
    aborted: list[tuple[int, int]] | None = None
    """(producer id, first offset) of the aborted transactions in the range, where asked for."""

    @property
    def size(self) -> int:
        return self.records.size if self.records is not None else 0


class RecentPlaces:
    """Offsets whose place in a segment is known: the oldest is forgotten when there are too many."""

    __slots__ = ("_places", "limit")

    def __init__(self, limit: int) -> None:
        self._places: dict[int, tuple[Segment, int]] = {}
        self.limit = limit

    def get(self, offset: int) -> tuple[Segment, int] | None:
        return self._places.get(offset)

    def put(self, offset: int, segment: Segment, position: int) -> None:
        places = self._places
        places[offset] = (segment, position)
        if len(places) > self.limit:
            del places[next(iter(places))]

    def clear(self) -> None:
        self._places.clear()
