"""Keeps the machine's memory allocated during a measurement.

The host of a virtual machine may reclaim free memory, in blocks of 2 MB where virtio's free page reporting is on. The
first touch of reclaimed memory costs 4.4 ms of CPU per MB here, ten times that of other pages, and is charged to the
process that writes: a broker whose page cache grows into such memory needs three times the CPU per MB in one run as in
the next. So the free memory is touched once before a measurement, then released but for one page per MB: the free
pieces that remain are too small for the host to reclaim.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

PAGE = mmap.PAGESIZE
BLOCK = 1 << 20
PIECE = 256 << 20
LEFT_FREE = 1500 << 20
MOST_HELD = 20 << 30
"""More than a measurement writes."""


@contextlib.contextmanager
def held(wanted: bool, say: Callable[[str], None]) -> Iterator[None]:
    pieces = _touch_all(say) if wanted else []
    try:
        yield
    finally:
        for piece in pieces:
            piece.close()


def _touch_all(say: Callable[[str], None]) -> list[mmap.mmap]:
    pieces: list[mmap.mmap] = []
    while _free() > LEFT_FREE + PIECE and len(pieces) < MOST_HELD // PIECE:
        pieces.append(_touched())
        if len(pieces) % 16 == 0:
            say(f"{len(pieces) * PIECE >> 30} GB of memory touched")
    for piece in pieces:
        for at in range(0, PIECE, BLOCK):
            piece.madvise(mmap.MADV_DONTNEED, at + PAGE, BLOCK - PAGE)
    return pieces


def _touched() -> mmap.mmap:
    piece = mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            piece.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, PIECE, PAGE):
        piece[at] = 1
    return piece


def _free() -> int:
    """Free memory in bytes; 0 on systems without /proc/meminfo, where no memory is held."""
    try:
        return int(Path("/proc/meminfo").read_text().split("MemFree:")[1].split()[0]) << 10
    except OSError:
        return 0
