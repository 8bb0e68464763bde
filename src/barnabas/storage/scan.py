"""Reading batch headers off a file, a block at a time, without touching the records."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.model.ports import File
from barnabas.wire.batch import HEADER_SIZE, BatchHeader, CorruptBatch, UnsupportedMagic, read_header

BLOCK_BYTES = 8192


def scan_headers(
    file: File, position: int, end: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches in ``[position, end)``; stops where there is none."""
    block = b""
    block_start = position
    while end - position >= HEADER_SIZE:
        inside = position - block_start
        if len(block) - inside < HEADER_SIZE:
            block_start, inside = position, 0
            block = file.read(min(block_bytes, end - position), position)
        try:
            header = read_header(block, inside)
        except (CorruptBatch, UnsupportedMagic):
            return
        if position + header.batch_length + 12 > end:
            return
        yield position, header
        position += header.batch_length + 12


def find_batch(file: File, offset: int, position: int, end: int) -> tuple[int, BatchHeader] | None:
    """The first batch at or after the position that holds the offset or a later one."""
    for found, header in scan_headers(file, position, end):
        if header.base_offset + header.last_offset_delta >= offset:
            return found, header
    return None
