"""Reads a log to rebuild state in memory: every batch is checked, CRC included, before it is used.

A fetch leaves the checksum to the client. Here the broker is the only reader.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.storage.scan import CHUNK_BYTES
from barnabas.storage.segment import LOG_SUFFIX, Segment
from barnabas.wire.batch import BatchHeader, CorruptBatch, iterate
from barnabas.wire.walk import ScanState, Stop, index_scan

if TYPE_CHECKING:
    from barnabas.storage.log import Log


def checked_batches(log: Log, start_offset: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """(buffer, position in it, header) of each batch with records at or after ``start_offset``, in offset order.

    Segments may roll, be cleaned or deleted between two steps: each is looked up when its turn has come. Raises
    CorruptBatch, which names file and offset, DiskError and LogOffline.
    """
    offset = start_offset
    while offset < log.log_end_offset:
        if log.offline is not None:
            raise log.offline
        segment = log.segments[max(bisect_right(log.bases, offset) - 1, 0)]
        end = segment.next_offset
        for content, position, header in _batches(segment) if segment.size else ():
            if header.last_offset >= start_offset:
                yield content, position, header
        offset = max(end, offset + 1)


def _batches(segment: Segment) -> Iterator[tuple[bytes, int, BatchHeader]]:
    file = segment.open_log()
    position = needed = 0
    state = ScanState(segment.base_offset)
    while position < segment.size:
        content = file.read(min(max(CHUNK_BYTES, needed), segment.size - position), position)
        scan = index_scan(content, state=state, max_offset=segment.next_offset - 1)
        for at, header in iterate(content, 0, scan.stop):
            yield content, at, header
        position, state, needed = position + scan.stop, scan.state, scan.needed_bytes
        is_cut = scan.reason is Stop.PARTIAL and position + needed <= segment.size and bool(content)
        if scan.reason is not Stop.END and not is_cut:
            raise CorruptBatch(
                f"{segment.name}{LOG_SUFFIX} is damaged at byte {position}, offset {state.next_offset} "
                f"({scan.reason.name})"
            )
