"""A metadata machine under test with a clock, a log and timers, as the shard runs it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from barnabas.core.decision import TimerFired
from barnabas.core.metadata import records as framing
from barnabas.core.metadata.features import BOOTSTRAP_FEATURES, KNOWN_RANGES
from barnabas.core.metadata.image import MetadataImage, PartitionImage
from barnabas.core.metadata.index import Key, PartitionIndex
from barnabas.core.metadata.machine import Activate, Bootstrap, MetadataMachine, MetadataPolicy
from barnabas.core.metadata.snapshot import records_of
from barnabas.model.broker_settings import all_broker_settings
from barnabas.wire.api import alter_partition as api
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import FeatureLevelRecord

SESSION_MS = 2500


class Cluster:
    def __init__(self, *, seed: int = 0, eligible: bool = True) -> None:
        self.random = random.Random(seed)
        self.policy = MetadataPolicy(
            node_id=100,
            cluster_id="c",
            broker_session_timeout_ms=SESSION_MS,
            static_settings={},
            broker_settings=all_broker_settings(),
        )
        self.machine = MetadataMachine(self.policy, self.random)
        self.log: list[Message] = []
        self.now_ms = 0
        self.timers: dict[str, int] = {}
        self.largest_decision = 0
        self.fails_appends = False
        features = {**BOOTSTRAP_FEATURES, "eligible.leader.replicas.version": int(eligible)}
        self.decide(Bootstrap([FeatureLevelRecord(name=n, feature_level=v) for n, v in features.items()]))
        self.decide(Activate())

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def decide(self, request: Any) -> Any:
        before = self.image
        decision = self.machine.decide("token", request, self.now_ms)
        assert self.image is before
        self.timers.update(decision.timers)
        ((_, reply),) = decision.replies
        if decision.records and not self.fails_appends:
            self.largest_decision = max(self.largest_decision, len(decision.records))
            self.log += [framing.decode(framing.encode(record)) for record in decision.records]
            self.machine.replay(decision.records, next_offset=len(self.log), raft_epoch=1, timestamp_ms=0)
            self.replayed(before, self.image)
        return reply

    def replayed(self, before: MetadataImage, after: MetadataImage) -> None:
        """For tests that look at every change."""

    def fire_due(self) -> int:
        """Fires the timers that are due until there are none; returns how many there were."""
        fired = 0
        while due := sorted((at, name) for name, at in self.timers.items() if at <= self.now_ms):
            _, name = due[0]
            del self.timers[name]
            self.decide(TimerFired(name))
            fired += 1
        return fired

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.fire_due()

    def fail_over(self) -> None:
        """Another controller: it has the log, and nothing that was in memory."""
        self.machine = self.load([self.log])
        self.timers.clear()
        self.decide(Activate())

    def load(self, batches: list[list[Message]]) -> MetadataMachine:
        machine = MetadataMachine(self.policy, self.random)
        for batch in batches:
            machine.replay(batch, next_offset=len(self.log), raft_epoch=1, timestamp_ms=0)
        return machine

    # Brokers and topics

    def register(self, node: int, incarnation: int = 1, previous: int = -1) -> Any:
        return self.decide(
            BrokerRegistrationRequest(
                broker_id=node,
                cluster_id="c",
                incarnation_id=incarnation.to_bytes(16, "big"),
                listeners=[Listener(name="PLAINTEXT", host="h", port=1)],
                features=[Feature(name, low, high) for name, (low, high) in KNOWN_RANGES.items()],
                rack=None,
                log_dirs=[(1000 + node).to_bytes(16, "big")],
                previous_broker_epoch=previous,
            )
        )

    def heartbeat(self, node: int, *, shutdown: bool = False) -> Any:
        return self.decide(
            BrokerHeartbeatRequest(
                broker_id=node,
                broker_epoch=self.image.brokers[node].broker_epoch,
                current_metadata_offset=len(self.log) - 1,
                want_shut_down=shutdown,
            )
        )

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.register(node)
            self.heartbeat(node)

    def create(self, name: str, assignment: list[list[int]], **configs: str) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(n, nodes) for n, nodes in enumerate(assignment)],
            configs=[CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
        )
        (result,) = self.decide(CreateTopicsRequest(topics=[topic])).topics
        assert not result.error_code, result.error_message

    def partitions(self) -> Iterator[tuple[Key, PartitionImage]]:
        for topic in self.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                yield (topic.topic_id, number), partition

    def alter_partition(self, keys: list[Key], in_sync: list[int], **changes: int) -> list[int]:
        """The error codes of a leader's request; ``changes`` are epochs other than the present ones."""
        leader = self.image.topics_by_id[keys[0][0]].partitions[keys[0][1]].leader
        topics = []
        for topic_id, number in keys:
            partition = self.image.topics_by_id[topic_id].partitions[number]
            wanted = api.AlterPartitionRequestPartitionData(
                partition_index=number,
                leader_epoch=changes.get("leader_epoch", partition.leader_epoch),
                partition_epoch=changes.get("partition_epoch", partition.partition_epoch),
                new_isr_with_epochs=[
                    api.BrokerState(node, changes.get(f"epoch_{node}", self.image.brokers[node].broker_epoch))
                    for node in in_sync
                ],
            )
            topics.append(api.AlterPartitionRequestTopicData(topic_id, [wanted]))
        reply = self.decide(
            api.AlterPartitionRequest(
                broker_id=leader, broker_epoch=self.image.brokers[leader].broker_epoch, topics=topics
            )
        )
        return [partition.error_code for topic in reply.topics for partition in topic.partitions]

    # What must hold

    def check(self) -> None:
        """When no timer is due: nothing is left half-done."""
        for key, partition in self.partitions():
            in_sync, eligible = set(partition.in_sync_replicas), set(partition.eligible_leader_replicas)
            assert len(partition.directories) == len(partition.replicas) == len(set(partition.replicas))
            assert in_sync | eligible <= set(partition.replicas), key
            assert not in_sync & eligible, key
            assert set(partition.adding_replicas) | set(partition.removing_replicas) <= set(partition.replicas), key
            if partition.leader != -1:
                assert partition.leader in in_sync, key
                assert self.image.brokers[partition.leader].serves, key

    def check_replay(self) -> None:
        """The log, in any batches, and a snapshot make the same image and the same index."""
        cuts = sorted(self.random.sample(range(len(self.log)), min(5, len(self.log))))
        edges = [0, *cuts, len(self.log)]
        batches = [self.log[low:high] for low, high in pairwise(edges)]
        snapshot = framing.decode_all([framing.encode(record) for record in records_of(self.image)])
        for machine in (self.load(batches), self.load([snapshot])):
            assert machine.image == self.image
            assert summary(machine.index, self.image) == summary(self.machine.index, self.image)


def summary(index: PartitionIndex, image: MetadataImage) -> dict[str, Any]:
    nodes = sorted({node for topic in image.topics.values() for each in topic.partitions for node in each.replicas})
    directories = sorted({d for topic in image.topics.values() for each in topic.partitions for d in each.directories})
    return {
        "leaderless": sorted(index.leaderless),
        "reassigning": sorted(index.reassigning),
        "not preferred": sorted(index.not_preferred),
        "led": [sorted(index.led_by(node)) for node in nodes],
        "in sync": [sorted(index.in_sync_with(node)) for node in nodes],
        "eligible": [sorted(index.eligible_on(node)) for node in nodes],
        "leaderless of": [sorted(index.leaderless_on(node)) for node in nodes],
        "directories": [sorted(index.in_directory(directory)) for directory in directories],
    }
