"""Random lives of a cluster: no acknowledged record is lost by a clean election, whatever the order of failures.

Beside the machine stands a model of the replicas' logs. A record is acknowledged when every in-sync replica has it and
they are at least min.insync.replicas; a broker that crashes may lose the end of its logs; a follower that has caught up
is proposed by the leader. Every change of the image is checked, and now and then the log and a snapshot are replayed.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.core.metadata.image import MetadataImage, PartitionImage
from barnabas.core.metadata.index import Key
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import NO_LEADER
from barnabas.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.api.elect_leaders import ElectLeadersRequest
from barnabas.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.api.unregister_broker import UnregisterBrokerRequest
from tests.unit.core.metadata_cluster import SESSION_MS, Cluster

NODES = (1, 2, 3, 4, 5)
STEPS = 250
MIN_IN_SYNC = {"one": 1, "two": 2, "three": 3, "loose": 2}


class World(Cluster):
    def __init__(self, seed: int, *, eligible: bool) -> None:
        self.logs: dict[tuple[Key, int], list[int]] = {}
        self.acknowledged: dict[Key, list[int]] = {}
        self.up: set[int] = set()
        """Processes that run, and send heartbeats."""
        self.paused: dict[int, int] = {}
        """Process that stands still -> its broker epoch."""
        self.clean: dict[int, int] = {}
        """Broker that stopped cleanly -> its last epoch, as its disk has it."""
        self.incarnations: dict[int, int] = {}
        self.minimum = dict(MIN_IN_SYNC)
        self.next_record = 0
        self.proposed: list[int] = []
        """By the leader that asks just now."""
        self.eligible = eligible
        super().__init__(seed=seed, eligible=eligible)
        self.chance = random.Random(seed)
        for node in NODES:
            self.begin(node)
        self.create("one", [[1, 2], [2, 3]], min_insync_replicas="1")
        self.create("two", [[1, 2, 3], [3, 4, 5], [5, 1, 2]], min_insync_replicas="2")
        self.create("three", [[2, 3, 4]], min_insync_replicas="3")
        self.create("loose", [[4, 5]], min_insync_replicas="2", unclean_leader_election_enable="true")
        self.settle()

    # Brokers

    def begin(self, node: int) -> None:
        self.incarnations[node] = self.incarnations.get(node, 0) + 1
        previous = self.clean.pop(node, -1)
        if self.register(node, self.incarnations[node], previous).error_code:
            return
        self.up.add(node)
        self.heartbeat(node)

    def crash(self, node: int) -> None:
        """What the disk had not stored is lost, from the end. Only eligible leader replicas are safe from that."""
        self.up.discard(node)
        if not self.eligible:
            return
        for (_, replica), log in self.logs.items():
            if replica == node and log and self.chance.random() < 0.7:
                del log[self.chance.randrange(len(log)) :]

    def pause(self, node: int) -> None:
        """It is not heard of for a while, and loses nothing."""
        self.up.discard(node)
        self.paused[node] = self.image.brokers[node].broker_epoch

    def resume(self, node: int) -> None:
        broker = self.image.brokers.get(node)
        if broker is not None and broker.broker_epoch == self.paused.pop(node) and not broker.in_controlled_shutdown:
            self.up.add(node)
            self.heartbeat(node)

    def stop(self, node: int) -> None:
        for _ in range(3):
            self.beat()
            if node not in self.image.brokers:
                return
            if self.heartbeat(node, shutdown=True).should_shut_down:
                self.up.discard(node)
                self.clean[node] = self.image.brokers[node].broker_epoch
                return
            self.settle()

    def beat(self) -> None:
        for node in sorted(self.up):
            broker = self.image.brokers.get(node)
            if broker is None:
                self.up.discard(node)  # unregistered: the process gives up
                self.crash(node)
            elif not broker.in_controlled_shutdown:
                self.heartbeat(node)

    def settle(self) -> None:
        self.fire_due()
        self.check()

    def expire(self) -> None:
        """Who is down is fenced."""
        self.now_ms += SESSION_MS - 1
        self.beat()
        self.now_ms += 1
        self.settle()

    # Logs

    def log_of(self, key: Key, node: int) -> list[int]:
        return self.logs.setdefault((key, node), [])

    def produce(self) -> None:
        for key, partition in self.partitions():
            leader = partition.leader
            if leader not in self.up or self.chance.random() < 0.3:
                continue
            self.next_record += 1
            self.log_of(key, leader).append(self.next_record)
            if not set(partition.in_sync_replicas) <= self.up:
                continue  # some in-sync replica does not fetch: nothing is acknowledged until it leaves the set
            for node in partition.in_sync_replicas:
                self.logs[key, node] = list(self.log_of(key, leader))
            if len(partition.in_sync_replicas) >= min(self.minimum_of(key), len(partition.replicas)):
                self.acknowledged[key] = list(self.log_of(key, leader))

    def minimum_of(self, key: Key) -> int:
        return self.minimum[self.image.topics_by_id[key[0]].name]

    def catch_up(self) -> None:
        """Leaders propose the followers that fetch, and drop those that do not."""
        for key, partition in list(self.partitions()):
            if partition.leader not in self.up or self.chance.random() < 0.4:
                continue
            now = self.image.topics_by_id[key[0]].partitions[key[1]]
            serving = [n for n in now.replicas if n in self.up and self.image.brokers[n].serves]
            keep = [n for n in serving if n == now.leader or self.chance.random() < 0.8]
            if now.leader not in keep or now.leader not in self.up:
                continue
            for node in keep:
                self.logs[key, node] = list(self.log_of(key, now.leader))
            self.proposed = keep
            (code,) = self.alter_partition([key], keep)
            self.proposed = []
            assert code in (0, ErrorCode.NEW_LEADER_ELECTED)

    def delayed(self) -> None:
        """Requests made for a former state are refused."""
        key, partition = self.chance.choice(list(self.partitions()))
        if partition.leader == NO_LEADER:
            return
        image = self.image
        if partition.partition_epoch:
            stale = self.alter_partition([key], [partition.leader], partition_epoch=partition.partition_epoch - 1)
            assert stale == [ErrorCode.INVALID_UPDATE_VERSION]
        if partition.leader_epoch:
            stale = self.alter_partition([key], [partition.leader], leader_epoch=partition.leader_epoch - 1)
            assert stale == [ErrorCode.FENCED_LEADER_EPOCH]
        other = next((n for n in partition.replicas if n != partition.leader and n in self.image.brokers), None)
        if other is not None:
            changes: Any = {f"epoch_{other}": self.image.brokers[other].broker_epoch - 1}
            stale = self.alter_partition([key], [partition.leader, other], **changes)
            assert stale == [ErrorCode.INELIGIBLE_REPLICA]
        assert self.image is image

    # Requests of administrators

    def reassign(self) -> None:
        key, partition = self.chance.choice(list(self.partitions()))
        target: list[int] | None = None
        if not partition.is_reassigning or self.chance.random() < 0.5:
            known = sorted(self.image.brokers)
            target = self.chance.sample(known, min(len(known), self.chance.randrange(1, 4)))
        name = self.image.topics_by_id[key[0]].name
        wanted = ReassignableTopic(name, [ReassignablePartition(key[1], target)])
        self.decide(AlterPartitionReassignmentsRequest(topics=[wanted]))

    def change_minimum(self) -> None:
        name = self.chance.choice(["one", "two", "three"])
        value = self.chance.randrange(1, 4)
        config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
        self.decide(IncrementalAlterConfigsRequest(resources=[resource]))
        self.minimum[name] = value

    def unregister(self) -> None:
        down = sorted(set(self.image.brokers) - self.up)
        if down:
            node = self.chance.choice(down)
            self.decide(UnregisterBrokerRequest(broker_id=node))
            self.clean.pop(node, None)

    def elect(self) -> None:
        self.decide(ElectLeadersRequest(topic_partitions=None))

    # Checks

    def replayed(self, before: MetadataImage, after: MetadataImage) -> None:
        for topic_id, topic in after.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            for number, now in enumerate(topic.partitions):
                was = old.partitions[number] if old is not None else now
                if was is not now:
                    self.check_change((topic_id, number), was, now)

    def check_change(self, key: Key, was: PartitionImage, now: PartitionImage) -> None:
        assert now.partition_epoch > was.partition_epoch
        assert now.leader_epoch >= was.leader_epoch
        assert now.leader == was.leader or now.leader_epoch > was.leader_epoch
        if now.leader in (NO_LEADER, was.leader):
            return
        in_sync = {*was.in_sync_replicas, *self.proposed}
        if now.leader not in in_sync and now.leader not in was.eligible_leader_replicas:
            assert now.leader_recovery_state, "an unclean election is marked"
            assert was.last_known_eligible == (now.leader,) or self.is_loose(key)
        if now.leader_recovery_state and (now.leader not in in_sync or self.is_loose(key)):
            self.acknowledged[key] = list(self.log_of(key, now.leader))
            return
        others = in_sync & self.serving() & set(now.replicas)
        assert now.leader in in_sync or not others, "the eligible come after those in sync"
        if now.leader not in self.up:
            return  # elected while its session lasts, but it has crashed: it leaves when it registers, or is fenced
        acknowledged = self.acknowledged.get(key, [])
        assert self.log_of(key, now.leader)[: len(acknowledged)] == acknowledged, "acknowledged records are lost"

    def is_loose(self, key: Key) -> bool:
        """Whether unclean elections are allowed."""
        return self.image.topics_by_id[key[0]].name == "loose"

    def serving(self) -> set[int]:
        return {node for node, broker in self.image.brokers.items() if broker.serves}

    def end_failures(self) -> None:
        for node in sorted(self.paused):
            self.resume(node)
        for node in sorted(self.up):
            if node in self.image.brokers and self.image.brokers[node].in_controlled_shutdown:
                self.crash(node)
        for _ in range(3):
            self.expire()
            for node in sorted(set(NODES) - self.up):
                self.begin(node)
        self.expire()

    def step(self) -> None:
        down = sorted(set(NODES) - self.up - set(self.paused))
        dice = self.chance.random()
        node = self.chance.choice(NODES)
        if node in self.paused and dice < 0.5:
            self.resume(node)
        elif dice < 0.06 and node in self.up and node in self.image.brokers:
            self.pause(node)
        elif dice < 0.12 and node in self.up:
            self.crash(node)
        elif dice < 0.2 and node in self.up:
            self.stop(node)
        elif dice < 0.4 and down:
            self.begin(self.chance.choice(down))
        elif dice < 0.55:
            self.expire()
        elif dice < 0.8:
            self.catch_up()
        elif dice < 0.86:
            self.reassign()
        elif dice < 0.9:
            self.delayed()
        elif dice < 0.92:
            self.fail_over()
        elif dice < 0.94:
            self.elect()
        elif dice < 0.96:
            self.change_minimum()
        elif dice < 0.97:
            self.unregister()
        self.settle()
        self.produce()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("eligible", [True, False])
def test_a_random_life(seed: int, eligible: bool) -> None:
    world = World(seed, eligible=eligible)
    for _ in range(STEPS):
        world.step()
    world.check_replay()
    world.end_failures()
    assert world.serving() == set(NODES)
    assert [partition for _, partition in world.partitions() if partition.leader == NO_LEADER] == []
