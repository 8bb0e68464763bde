"""Cached metadata of a client: brokers, topics, and partition leaders."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.wire.address import Address
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.metadata import MetadataResponse, MetadataResponseTopic


class BrokerInfo(NamedTuple):
    node_id: int
    address: Address
    rack: str | None


class PartitionInfo(NamedTuple):
    partition: int
    leader: int
    """-1 where there is none at the moment."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    """Zeros where the broker is too old to say (KIP-516)."""
    is_internal: bool
    code: ErrorCode
    partitions: dict[int, PartitionInfo]


class Metadata:
    """The last word on each topic that was asked about."""

    __slots__ = ("brokers", "cluster_id", "controller_id", "topics")

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1

    def update(self, answer: MetadataResponse) -> dict[str, TopicInfo]:
        """Takes a reply in; returns the topics that it speaks of."""
        self.cluster_id, self.controller_id = answer.cluster_id, answer.controller_id
        if answer.brokers:
            self.brokers = {
                broker.node_id: BrokerInfo(broker.node_id, Address(broker.host, broker.port), broker.rack)
                for broker in answer.brokers
            }
        found = {topic.name: _topic(topic.name, topic) for topic in answer.topics if topic.name is not None}
        for name, topic in found.items():
            if topic.code is ErrorCode.NONE:
                self.topics[name] = topic
            else:
                self.topics.pop(name, None)
        return found


def _topic(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    partitions = {
        item.partition_index: PartitionInfo(
            item.partition_index,
            item.leader_id,
            item.leader_epoch,
            tuple(item.replica_nodes),
            tuple(item.isr_nodes),
            tuple(item.offline_replicas),
        )
        for item in sorted(topic.partitions, key=lambda item: item.partition_index)
    }
    return TopicInfo(name, topic.topic_id, topic.is_internal, ErrorCode(topic.error_code), partitions)
