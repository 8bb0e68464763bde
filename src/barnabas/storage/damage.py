"""Handles reads that fail: finds out whether the log file or its index is damaged. Normal reads never come here.

An index can be rebuilt from its log file, so the whole file is checked first. If it is sound, the indexes are rebuilt,
once, and the read is retried. If not, the indexes are kept: only their entries lead to the sound batches after the
damage. The read fails with CorruptBatch, which becomes CORRUPT_MESSAGE as in Kafka; skipping to the next segment would
lose acknowledged records silently.

Offsets without a batch are not damage in themselves: compaction removes batches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.storage.scan import scan_segment
from barnabas.storage.segment import LOG_SUFFIX, Segment
from barnabas.wire.batch import BatchHeader, CorruptBatch
from barnabas.wire.walk import IndexScan, ScanState

if TYPE_CHECKING:
    from barnabas.storage.log import Log

Report = Callable[..., None]
"""``report(event, **fields)``, a line of the broker's log."""

MAX_LOOKED_AT = 10_000
"""Batches checked for traces of compaction, which rarely leaves this many in a row unchanged."""


def unheard(event: str, **fields: object) -> None:
    """A report that does nothing, for logs without one."""


def position_of(log: Log, segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """``Segment.position_of``, retried after a rebuild where the indexes are damaged."""
    try:
        return segment.position_of(offset)
    except CorruptBatch as problem:
        repair_indexes(log, segment, problem)
        return segment.position_of(offset)


def repair_indexes(log: Log, segment: Segment, problem: CorruptBatch) -> None:
    """Rebuilds the indexes, or raises the problem again if they are not its cause."""
    if segment.is_repaired or not is_sound(log, segment):
        raise problem
    segment.is_repaired = True
    segment.rebuild_indexes()
    tell_rebuilt(log, segment, str(problem))


def tell_rebuilt(log: Log, segment: Segment, reason: str) -> None:
    log.report("an index was rebuilt", partition=str(log.partition), file=segment.name + LOG_SUFFIX, reason=reason)


def is_sound(log: Log, segment: Segment) -> bool:
    """Whether the file consists of whole batches. Checked once, without checksums, which readers verify."""
    if segment.is_sound is None:
        found = scan_segment(
            segment, segment.size, _take_nothing, state=ScanState(segment.base_offset), check_crc=False
        )
        segment.is_sound = found.position == segment.size
        if not segment.is_sound:
            log.report(
                "a segment is damaged; what cannot be read of it is answered with CORRUPT_MESSAGE",
                partition=str(log.partition),
                file=segment.name + LOG_SUFFIX,
                position=found.position,
                bytes=segment.size - found.position,
                reason=found.reason.name,
            )
    return segment.is_sound


def _take_nothing(_scan: IndexScan, _data: bytes, _position: int) -> None: ...


def check_gap(log: Log, segment: Segment, offset: int, *, at_end: bool) -> None:
    """No batch of the segment holds the offset. Raises CorruptBatch where compaction cannot have done that."""
    if log.settings.compacts:
        return
    if at_end and segment.is_sound is not False and not was_compacted(segment):
        segment.is_sound = False
        log.report(
            "a segment has lost its end; what is missing is answered with CORRUPT_MESSAGE",
            partition=str(log.partition),
            file=segment.name + LOG_SUFFIX,
            bytes=segment.size,
            offset=offset,
            next_segment=segment.next_offset,
        )
    if not is_sound(log, segment):
        raise CorruptBatch(f"no batch of {segment.name}{LOG_SUFFIX} holds offset {offset}")


def was_compacted(segment: Segment) -> bool:
    """Whether records are missing between others, in a topic that compacts no longer perhaps. Raises CorruptBatch."""
    next_offset = segment.base_offset
    for _, header in islice(segment.batches(), MAX_LOOKED_AT):
        if header.base_offset != next_offset or header.record_count != header.last_offset_delta + 1:
            return True
        next_offset = header.next_offset
    return False
