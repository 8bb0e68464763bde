"""Framing without I/O: finds the end of a frame in received bytes. A frame is a size of four bytes and a body."""

from __future__ import annotations

from struct import Struct

from barnabas.model.session import Refused

SMALL_FRAME_LIMIT = 8 << 20
"""Only Produce carries records: any other request above this is abuse."""
PRODUCE_KEY = 0
SMALLEST_RESPONSE = 4
"""The correlation id."""

_SIZE = Struct(">i")
_KEY = Struct(">h")


def end_of_frame(view: memoryview, start: int, end: int, max_frame_bytes: int) -> int:
    """Where the frame at ``start`` ends; 0 where it is not complete yet. Raises Refused."""
    if end - start < 4:
        return 0
    size: int = _SIZE.unpack_from(view, start)[0]
    if size <= 0 or size > max_frame_bytes:
        raise Refused(f"a frame of {size} bytes")
    stop = start + 4 + size
    if stop <= end:
        return stop
    if size > SMALL_FRAME_LIMIT and end - start >= 6 and _KEY.unpack_from(view, start + 4)[0] != PRODUCE_KEY:
        raise Refused(f"a request other than Produce of {size} bytes")
    return 0


def claimed_size(view: memoryview) -> int:
    """The size, with its own four bytes, that the frame at the beginning of the view says it has; 0 if unknown."""
    return int(_SIZE.unpack_from(view)[0]) + 4 if len(view) >= 4 else 0


def end_of_response(view: memoryview, start: int, end: int, max_frame_bytes: int) -> int:
    """Where the response at ``start`` ends; 0 where it is not complete yet. Raises Refused."""
    if end - start < 4:
        return 0
    size: int = _SIZE.unpack_from(view, start)[0]
    if not SMALLEST_RESPONSE <= size <= max_frame_bytes:
        raise Refused(f"a response of {size} bytes")
    stop = start + 4 + size
    return stop if stop <= end else 0
