"""Auto-created topics: those that clients name in Metadata requests, and ``__consumer_offsets``."""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


def request_for(names: list[str], broker: Broker) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[_topic(name, broker) for name in names])


def _topic(name: str, broker: Broker) -> CreatableTopic:
    if name != OFFSETS_TOPIC:
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    settings = broker.settings
    configs: dict[str, Any] = {
        "cleanup.policy": "compact",
        "segment.bytes": max(settings.offsets_topic_segment_bytes, 1 << 20),
        "compression.type": "producer",
    }
    return CreatableTopic(
        name=name,
        num_partitions=settings.offsets_topic_num_partitions,
        replication_factor=_replicas(broker),
        configs=[CreatableTopicConfig(key, str(value)) for key, value in configs.items()],
    )


def _replicas(broker: Broker) -> int:
    """A single broker must serve groups with default settings; three must not keep their offsets on one alone."""
    wanted = broker.settings.offsets_topic_replication_factor
    is_given = "offsets.topic.replication.factor" in broker.static_settings
    return wanted if is_given else min(wanted, len(broker.live_brokers()))
