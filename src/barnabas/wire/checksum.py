"""CRC-32C, from our own native code where it is built: importing the package alone costs a start 30 ms."""

from __future__ import annotations

try:
    from barnabas.wire._walk import crc32c
except ImportError:  # no compiler where this was installed
    from crc32c import crc32c

__all__ = ["crc32c"]
