"""Decides whether the unsound end of the metadata log is a torn write or damage.

A crash tears the write that was under way: recovery cuts it off, and it was never acknowledged. A log that was closed
cleanly has no torn end, and neither has one with batches of a later leader after it, which had read the log to its end.
Before batches of the same leader, a power failure can leave a page that was never written and reads as zeros. All other
unsound bytes are damage: cutting them off would remove acknowledged metadata, on which everything else depends.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.model.ports import Disk
from barnabas.storage.scan import scan_segment
from barnabas.storage.segment import LOG_SUFFIX, Segment
from barnabas.wire.batch import MAGIC, BatchHeader, CorruptBatch, UnsupportedMagic, check_crc, read_header
from barnabas.wire.walk import IndexScan, ScanState

ZEROS = 64
"""As many in a row are no part of a sound batch of metadata."""

_MAGIC_AT = 16


def find_damage(disk: Disk, directory: str, *, closed_in: int | None) -> tuple[str, int] | None:
    """(file, position) of what is damaged rather than torn.

    ``closed_in`` is the epoch of the last vote where the log was closed cleanly. A leader of that epoch may have begun
    since, and have been torn away at its first write.
    """
    bases = sorted(int(name[:20]) for name in disk.list(directory) if name.endswith(LOG_SUFFIX) and name[:20].isdigit())
    leader_epoch = -1
    for base in bases:
        segment = Segment(disk, directory, base, created_ms=0, index_interval_bytes=1 << 30, stored=True)
        size = segment.open_log().size()
        end, leader_epoch = _sound_end(segment, size, leader_epoch)
        if end < size:
            rest = segment.open_log().read(size - end, end)
            may_be_torn = base == bases[-1] and (closed_in is None or closed_in > leader_epoch)
            torn = may_be_torn and _is_torn(rest, leader_epoch)
            segment.close()
            return None if torn else (segment.name + LOG_SUFFIX, end)
        segment.close()
    return None


def _sound_end(segment: Segment, size: int, leader_epoch: int) -> tuple[int, int]:
    """Where the sound batches end, and the last of their leaders' epochs."""

    def take(scan: IndexScan, data: bytes, position: int) -> None:
        nonlocal leader_epoch
        if scan.epochs:
            leader_epoch = scan.epochs[-2]

    state = ScanState(segment.base_offset, leader_epoch=leader_epoch)
    return scan_segment(segment, size, take, state=state, check_crc=True).position, leader_epoch


def _is_torn(rest: bytes, leader_epoch: int) -> bool:
    first = None
    for start, header in _sound_batches(rest):
        if header.leader_epoch > leader_epoch:
            return False
        first = start if first is None else first
    return first is None or bytes(ZEROS) in rest[:first]


def _sound_batches(rest: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Wherever they begin."""
    at = rest.find(MAGIC, _MAGIC_AT)
    while at >= 0:
        start, at = at - _MAGIC_AT, rest.find(MAGIC, at + 1)
        try:
            header = read_header(rest, start)
        except (CorruptBatch, UnsupportedMagic):
            continue
        if check_crc(rest, start, header.size):
            yield start, header
