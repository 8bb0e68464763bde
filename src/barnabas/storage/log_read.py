"""Reads of a log: finds the file range of whole batches by looking only at its ends.

A sequential consumer asks for the offset at which its last read ended, and a read mostly ends at the high watermark,
which was the end of an append. Both are remembered in small bounded maps, so a sequential read needs no index lookup;
any other read is one binary search and a scan of about index.interval.bytes.

A position is remembered only if a sound header was read or written there. Damage is found by the header reads that
happen anyway; only reads that find some pay for handling it (see ``damage``).
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import File
from barnabas.storage import damage
from barnabas.storage.scan import sound_headers
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.batch import CorruptBatch

if TYPE_CHECKING:
    from barnabas.storage.log import Log

HOT_BYTES = 16 << 20
"""The end of a log that this process has appended to: its pages are in the cache, and are not asked after."""
RECENT_ENDS = 64
"""Read ends remembered for each log: about as many as it has sequential readers."""


class FileRange:
    """Whole batches in a file, to be sent from the page cache."""

    __slots__ = ("file", "is_hot", "position", "size")

    def __init__(self, file: File, position: int, size: int, *, is_hot: bool = False) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.is_hot = is_hot
        """In the page cache for all we know: just written, or just read ahead."""

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
    """Offsets whose place in a segment is known: the last ``limit`` at least, twice as many at most.

    Two generations, since taking single entries out of a dict costs more than the entries are worth.
    """

    __slots__ = ("_newer", "_older", "limit")

    def __init__(self, limit: int) -> None:
        self._newer: dict[int, tuple[Segment, int]] = {}
        self._older: dict[int, tuple[Segment, int]] = {}
        self.limit = limit

    def get(self, offset: int) -> tuple[Segment, int] | None:
        return self._newer.get(offset) or self._older.get(offset)

    def put(self, offset: int, segment: Segment, position: int) -> None:
        self._newer[offset] = (segment, position)
        if len(self._newer) >= self.limit:
            self._older, self._newer = self._newer, {}

    def clear(self) -> None:
        self._newer.clear()
        self._older.clear()


def read(log: Log, offset: int, max_bytes: int, max_offset: int, minimum_one: bool, aborted: bool) -> ReadResult:
    """``Log.read``, whose description holds; ``max_offset`` is at most the log's end here. Raises CorruptBatch."""
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {log.partition} is outside {log.log_start_offset}..{log.log_end_offset}",
        )
    place = _locate(log, offset) if offset < max_offset else None
    if place is None:
        return ReadResult(None, offset, offset, [] if aborted else None)
    segment, position, first_offset = place
    try:
        limit, next_offset = _limit(log, segment, max_offset)
        size = limit - position
        if size > max_bytes:
            limit, next_offset = segment.boundary_before(position, position + max_bytes, minimum_one=minimum_one)
            size = limit - position
        if 0 < size < segment.size - position:
            log.read_ends.put(next_offset, segment, position + size)
    except CorruptBatch as problem:
        with suppress(CorruptBatch):
            damage.repair_indexes(log, segment, problem)
        size, next_offset = _up_to_damage(segment, position, max_bytes, max_offset, minimum_one)
    if size <= 0:
        return ReadResult(None, offset, offset, [] if aborted else None)
    is_hot = segment.size - position <= HOT_BYTES and segment is log.segments[-1] and log.has_appended
    records = FileRange(segment.log or segment.open_log(), position, size, is_hot=is_hot)
    if not aborted:
        return ReadResult(records, first_offset, next_offset)
    entries = aborted_transactions(log, offset, next_offset)
    return ReadResult(
        records, first_offset, next_offset, [(entry.producer_id, entry.first_offset) for entry in entries]
    )


def _up_to_damage(
    segment: Segment, position: int, max_bytes: int, max_offset: int, minimum_one: bool
) -> tuple[int, int]:
    """(size, next offset) of the batches before the place that cannot be read. Raises CorruptBatch at that place."""
    _, first = next(segment.batches(position))
    segment.check_offset(position, first)
    size, next_offset = 0, first.base_offset
    for found, header in sound_headers(segment.open_log(), position, segment.size):
        reach = found + header.size - position
        fits = reach <= max_bytes or (minimum_one and found == position)
        if not fits or header.last_offset >= max_offset:
            break
        size, next_offset = reach, header.next_offset
    return size, next_offset


def _locate(log: Log, offset: int) -> tuple[Segment, int, int] | None:
    """(segment, position, base offset) of the batch that holds the offset or the first after it."""
    place = log.read_ends.get(offset) or log.append_ends.get(offset)
    if place is not None and not place[0].removed and place[1] < place[0].size:
        return place[0], place[1], offset
    for segment in log.segments[max(bisect_right(log.bases, offset) - 1, 0) :]:
        found = damage.position_of(log, segment, offset)
        if found is None:
            if segment is not log.segments[-1]:
                damage.check_gap(log, segment, offset, at_end=True)
            continue
        if segment.base_offset <= offset < found[1].base_offset:
            damage.check_gap(log, segment, offset, at_end=False)
        return segment, found[0], found[1].base_offset
    return None


def _limit(log: Log, segment: Segment, max_offset: int) -> tuple[int, int]:
    """(position, offset) at which a read of the segment has to end."""
    if segment.next_offset <= max_offset:
        return segment.size, segment.next_offset
    place = log.append_ends.get(max_offset) or log.read_ends.get(max_offset)
    if place is not None and place[0] is segment:
        return place[1], max_offset
    found = segment.position_of(max_offset)
    if found is None:  # a gap at the end of a compacted segment
        return segment.size, segment.next_offset
    log.read_ends.put(found[1].base_offset, segment, found[0])
    return found[0], min(max_offset, found[1].base_offset)


def aborted_transactions(log: Log, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """From the indexes of all segments that can know."""
    found: list[AbortedTransaction] = []
    for segment in log.segments[max(bisect_right(log.bases, start_offset) - 1, 0) :]:
        if segment.transaction_index.collect(start_offset, end_offset, found):
            break
    return found
