"""Auto-created topics: those that clients name in Metadata requests, and ``__consumer_offsets``."""

from __future__ import annotations

from typing import Any

from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


def request_for(names: list[str], settings: BrokerSettings) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[_topic(name, settings) for name in names])


def _topic(name: str, settings: BrokerSettings) -> CreatableTopic:
    if name != OFFSETS_TOPIC:
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    configs: dict[str, Any] = {
        "cleanup.policy": "compact",
        "segment.bytes": max(settings.offsets_topic_segment_bytes, 1 << 20),
        "compression.type": "producer",
    }
    return CreatableTopic(
        name=name,
        num_partitions=settings.offsets_topic_num_partitions,
        replication_factor=settings.offsets_topic_replication_factor,
        configs=[CreatableTopicConfig(key, str(value)) for key, value in configs.items()],
    )
