"""The records of ``__consumer_offsets``: a key prefixed with its type, a value prefixed with its version.

A record without a value deletes the key. Unknown types are skipped and kept.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from barnabas.core.txn.marker import Producer
from barnabas.wire import codec
from barnabas.wire.schema import DecodeError, Message
from barnabas.wire.stored.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

_NUMBER = Struct(">h")

LEGACY_OFFSET_COMMIT, OFFSET_COMMIT, GROUP_METADATA = 0, 1, 2
_KEYS: dict[int, type[Message]] = {
    LEGACY_OFFSET_COMMIT: LegacyOffsetCommitKey,
    OFFSET_COMMIT: OffsetCommitKey,
    GROUP_METADATA: GroupMetadataKey,
}
_VALUES: dict[int, type[Message]] = {
    LEGACY_OFFSET_COMMIT: OffsetCommitValue,
    OFFSET_COMMIT: OffsetCommitValue,
    GROUP_METADATA: GroupMetadataValue,
}
_TYPE_OF = {OffsetCommitKey: OFFSET_COMMIT, GroupMetadataKey: GROUP_METADATA}

OFFSET_VERSION, GROUP_VERSION = 4, 3
"""Of values: as Kafka 4.3 writes them."""
EXPIRING_OFFSET_VERSION = 1
"""The only version that holds a time of expiry."""


class GroupRecord(NamedTuple):
    key: OffsetCommitKey | GroupMetadataKey
    value: OffsetCommitValue | GroupMetadataValue | None
    """None is a tombstone."""
    producer: Producer | None = None
    """Of the transaction that commits the offset."""


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    kind = _TYPE_OF[type(record.key)]
    key = _NUMBER.pack(kind) + codec.encode_bytes(record.key, 0)
    if record.value is None:
        return key, None
    version = _version(record.value)
    return key, _NUMBER.pack(version) + codec.encode_bytes(record.value, version)


def _version(value: OffsetCommitValue | GroupMetadataValue) -> int:
    if isinstance(value, GroupMetadataValue):
        return GROUP_VERSION
    return OFFSET_VERSION if value.expire_timestamp < 0 else EXPIRING_OFFSET_VERSION


def decode(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """None for a type that this build does not act upon."""
    if key is None or len(key) < 2:
        raise DecodeError("a group record without a key")
    kind = _NUMBER.unpack_from(key)[0]
    cls = _KEYS.get(kind)
    if cls is None:
        return None
    decoded = codec.decode(cls, 0, key, 2)[0]
    if isinstance(decoded, LegacyOffsetCommitKey):
        decoded = OffsetCommitKey(decoded.group, decoded.topic, decoded.partition)
    if value is None:
        return GroupRecord(decoded, None)  # type: ignore[arg-type]
    if len(value) < _NUMBER.size:
        raise DecodeError("a group record without a version")
    version = _NUMBER.unpack_from(value)[0]
    return GroupRecord(decoded, codec.decode(_VALUES[kind], version, value, 2)[0])  # type: ignore[arg-type]
