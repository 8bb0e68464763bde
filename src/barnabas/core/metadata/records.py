"""Metadata records in the log: a frame of three varints before the message (KIP-631).

frame version (1) | record type | record version | message
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from barnabas.wire import codec
from barnabas.wire.codec import DecodeError
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_control, metadata_nodes, metadata_security, metadata_topics

FRAME_VERSION = 1

_TYPES: dict[int, tuple[type[Message], int]] = {
    # type: (class, the version that we write)
    0: (metadata_nodes.RegisterBrokerRecord, 4),
    1: (metadata_nodes.UnregisterBrokerRecord, 0),
    2: (metadata_topics.TopicRecord, 0),
    3: (metadata_topics.PartitionRecord, 2),
    4: (metadata_topics.ConfigRecord, 0),
    5: (metadata_topics.PartitionChangeRecord, 2),
    7: (metadata_nodes.FenceBrokerRecord, 0),
    8: (metadata_nodes.UnfenceBrokerRecord, 0),
    9: (metadata_topics.RemoveTopicRecord, 0),
    10: (metadata_security.DelegationTokenRecord, 0),
    11: (metadata_security.UserScramCredentialRecord, 0),
    12: (metadata_control.FeatureLevelRecord, 0),
    14: (metadata_security.ClientQuotaRecord, 0),
    15: (metadata_control.ProducerIdsRecord, 0),
    17: (metadata_nodes.BrokerRegistrationChangeRecord, 3),
    18: (metadata_security.AccessControlEntryRecord, 0),
    19: (metadata_security.RemoveAccessControlEntryRecord, 0),
    20: (metadata_control.NoOpRecord, 0),
    21: (metadata_control.ZkMigrationStateRecord, 0),
    22: (metadata_security.RemoveUserScramCredentialRecord, 0),
    23: (metadata_control.BeginTransactionRecord, 0),
    24: (metadata_control.EndTransactionRecord, 0),
    25: (metadata_control.AbortTransactionRecord, 0),
    26: (metadata_security.RemoveDelegationTokenRecord, 0),
    27: (metadata_nodes.RegisterControllerRecord, 0),
    28: (metadata_topics.ClearElrRecord, 0),
}


class UnknownRecord(Exception):
    """A record of a type or version that this build does not know: a newer metadata.version wrote it."""


@cache
def _frame(cls: type[Message]) -> tuple[bytes, int]:
    for key, (known, version) in _TYPES.items():
        if known is cls:
            return bytes((FRAME_VERSION, key, version)), version
    raise UnknownRecord(cls.__name__)


def encode(record: Message) -> bytes:
    frame, version = _frame(type(record))
    return frame + codec.encode_bytes(record, version)


def decode(value: bytes) -> Message:
    """One record from its value in the log. Types and versions are below 128: one byte each."""
    if len(value) < 3 or value[0] != FRAME_VERSION or value[1] > 127 or value[2] > 127:
        raise DecodeError(f"not a metadata record: {value[:16].hex()}")
    known = _TYPES.get(value[1])
    if known is None:
        raise UnknownRecord(f"metadata record of type {value[1]}")
    cls, written = known
    if value[2] > written:
        raise UnknownRecord(f"{cls.__name__} version {value[2]}, known up to {written}")
    record, end = codec.decode(cls, value[2], memoryview(value), 3)
    if end != len(value):
        raise DecodeError(f"{len(value) - end} bytes after a {cls.__name__}")
    return record


def decode_all(values: Iterable[bytes]) -> list[Message]:
    return [decode(value) for value in values]
