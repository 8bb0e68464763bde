"""Auto-created topics: those that clients name in Metadata requests, and the internal ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.context import Broker
from barnabas.model.ids import INTERNAL_TOPICS, OFFSETS_TOPIC
from barnabas.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


def request_for(names: list[str], broker: Broker) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[_topic(name, broker) for name in names])


def _topic(name: str, broker: Broker) -> CreatableTopic:
    if name not in INTERNAL_TOPICS:
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    settings = broker.settings
    if name == OFFSETS_TOPIC:
        replicas = _replicas(broker, "offsets.topic.replication.factor", settings.offsets_topic_replication_factor)
        configs = {"segment.bytes": settings.offsets_topic_segment_bytes, "compression.type": "producer"}
        return _internal(name, settings.offsets_topic_num_partitions, replicas, configs)
    wanted = settings.transaction_state_log_replication_factor
    replicas = _replicas(broker, "transaction.state.log.replication.factor", wanted)
    min_in_sync = settings.transaction_state_log_min_isr
    if "transaction.state.log.min.isr" not in broker.static_settings:
        min_in_sync = max(1, min(min_in_sync, replicas - 1))  # any one of them may be away
    configs = {
        "segment.bytes": settings.transaction_state_log_segment_bytes,
        "compression.type": "uncompressed",
        "min.insync.replicas": min_in_sync,
        "unclean.leader.election.enable": "false",
    }
    return _internal(name, settings.transaction_state_log_num_partitions, replicas, configs)


def _internal(name: str, partitions: int, replicas: int, configs: dict[str, Any]) -> CreatableTopic:
    configs = {"cleanup.policy": "compact", **configs, "segment.bytes": max(configs["segment.bytes"], 1 << 20)}
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(key, str(value)) for key, value in configs.items()],
    )


def _replicas(broker: Broker, setting: str, wanted: int) -> int:
    """A single broker must serve with default settings; three must not keep their state on one alone."""
    return wanted if setting in broker.static_settings else min(wanted, len(broker.live_brokers()))


def create_internal(broker: Broker, name: str, then: Callable[[], None]) -> None:
    """Calls ``then`` when the topic is there, or could not be created."""

    def created(_: Any) -> None:
        broker.when_image(lambda image: name in image.topics, then)

    broker.to_controller(request_for([name], broker), created)
