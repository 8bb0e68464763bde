"""Ids and small values that all packages use."""

from __future__ import annotations

import base64
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)

Uuid = NewType("Uuid", bytes)
"""Sixteen bytes, as on the wire."""

ZERO_UUID = Uuid(bytes(16))
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")

NO_LEADER = NodeId(-1)
NO_LEADER_EPOCH = -1
NO_OFFSET = -1
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_text(uuid: bytes) -> str:
    """Kafka's spelling: URL-safe base64 of the sixteen bytes without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> Uuid:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"not a Kafka uuid: {text!r}")
    return Uuid(raw)
