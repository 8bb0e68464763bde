"""Memory that the machine has for good while it is measured.

The host of a virtual machine may take free memory back, in whole blocks (2 MB where it is told of them by virtio's free
page reporting). Touching such memory again costs CPU, here 4.4 ms per MB, ten times the first touch of any page, and it
is charged to whoever writes: page cache that grows into it makes a broker's bytes three times as dear in one run as
in the next. So before a measurement the free memory is touched once, and let go again but for one page in each MB: what
is free then is free in pieces too small to be taken back.
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
    """0 where it cannot be asked for: then nothing is held."""
    try:
        return int(Path("/proc/meminfo").read_text().split("MemFree:")[1].split()[0]) << 10
    except OSError:
        return 0
