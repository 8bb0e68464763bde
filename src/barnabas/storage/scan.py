"""Scans batch headers of a file without reading the records, and whole segments.

Within the known size of a segment every byte belongs to a batch. Bytes that cannot be read there are damage, and a scan
raises: if it just ended, a reader would skip acknowledged records and go on with the next segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.model.ports import File
from barnabas.model.settings import INT_MAX
from barnabas.wire.batch import HEADER_SIZE, BatchHeader, CorruptBatch, UnsupportedMagic, read_header
from barnabas.wire.walk import IndexScan, ScanState, Stop, index_scan

if TYPE_CHECKING:
    from barnabas.storage.segment import Segment

BLOCK_BYTES = 8192
CHUNK_BYTES = 4 << 20


def scan_headers(
    file: File, position: int, end: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches in ``[position, end)``. Raises CorruptBatch where there is no whole one."""
    if position < 0:
        raise CorruptBatch(f"no batch can begin at position {position}")
    block = b""
    block_start = position
    while position < end:
        inside = position - block_start
        if len(block) - inside < HEADER_SIZE:
            block_start, inside = position, 0
            block = file.read(min(block_bytes, end - position), position)
        try:
            header = read_header(block, inside)
        except (CorruptBatch, UnsupportedMagic) as error:
            raise CorruptBatch(f"no batch at position {position}: {error}") from None
        if position + header.batch_length + 12 > end:
            raise CorruptBatch(f"the batch at position {position} is cut short at {end}")
        yield position, header
        position += header.batch_length + 12
    if position > end:
        raise CorruptBatch(f"position {position} is beyond the end {end}")


def sound_headers(
    file: File, position: int, end: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Like ``scan_headers``, but stops at the first position without a whole batch."""
    try:
        yield from scan_headers(file, position, end, block_bytes)
    except CorruptBatch:
        return


def find_batch(file: File, offset: int, position: int, end: int) -> tuple[int, BatchHeader] | None:
    """The first batch at or after the position that holds the offset or a later one."""
    for found, header in scan_headers(file, position, end):
        if header.base_offset + header.last_offset_delta >= offset:
            return found, header
    return None


class SegmentScan:
    """Where a scan of a segment has ended, and why."""

    __slots__ = ("position", "reason")

    def __init__(self, position: int) -> None:
        self.position = position  # behind the last sound batch
        self.reason = Stop.END


def scan_segment(
    segment: Segment,
    size: int,
    take: Callable[[IndexScan, bytes, int], None],
    *,
    position: int = 0,
    state: ScanState,
    check_crc: bool,
) -> SegmentScan:
    """Goes over the batches chunk by chunk, up to the first that is not sound."""
    file = segment.open_log()
    found = SegmentScan(position)
    needed = 0
    while found.position < size:
        data = file.read(min(max(CHUNK_BYTES, needed), size - found.position), found.position)
        scan = index_scan(
            data,
            state=state,
            file_position=found.position,
            index_interval_bytes=segment.index_interval_bytes,
            max_offset=segment.base_offset + INT_MAX,
            check_crc=check_crc,
        )
        take(scan, data, found.position)
        state, needed = scan.state, scan.needed_bytes
        found.position += scan.stop
        found.reason = scan.reason
        if scan.reason not in (Stop.END, Stop.PARTIAL) or needed > size - found.position or not data:
            break
    return found
