"""The hash by which Kafka's Java client spreads keys over partitions: MurmurHash2, 32 bit, with Kafka's seed."""

from __future__ import annotations

from struct import unpack_from

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Signed, as Java's int is."""
    length = len(key)
    whole = length & ~3
    value = _SEED ^ length
    for word in unpack_from(f"<{length >> 2}I", key):
        word = word * _M & _MASK  # noqa: PLW2901 - the mixing steps read as the published function does
        value = (value * _M & _MASK) ^ ((word ^ word >> 24) * _M & _MASK)
    if whole < length:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    value ^= value >> 15
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Kafka drops the sign bit (toPositive) rather than taking the absolute value."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
