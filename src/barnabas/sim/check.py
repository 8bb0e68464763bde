"""What must hold in a cluster: at every moment, and when it has come to rest."""

from __future__ import annotations

from typing import Any

from barnabas.sim.cluster import SimNode
from barnabas.sim.history import Violation
from barnabas.wire.batch import iterate
from barnabas.wire.records import decode_batch


class Checker:
    def __init__(self, nodes: dict[int, SimNode]) -> None:
        self._nodes = nodes
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        """(topic id, partition, leader epoch) -> the node that led it."""
        self._raft_leaders: dict[int, int] = {}
        self._committed: dict[tuple[bytes, int], int] = {}
        """The highest high watermark that a leader had: none goes back behind it."""

    # At every moment

    def look(self) -> None:
        for node in self._nodes.values():
            if node.node is None or not node.is_serving:
                continue
            driver = node.node.driver
            if driver.is_leader:
                self._one(self._raft_leaders, driver.raft_epoch, node, f"raft epoch {driver.raft_epoch}")
            for partition in node.node.broker.partitions:
                if partition.leader is not None:
                    self._look_at_leader(node, partition)

    def _look_at_leader(self, node: SimNode, partition: Any) -> None:
        place = partition.topic_id, partition.name.partition
        what = f"{partition.name} in leader epoch {partition.leader_epoch}"
        self._one(self._leaders, (*place, partition.leader_epoch), node, what)
        if partition.high_watermark > partition.log_end_offset:
            raise Violation(f"{partition.name} on node {node.node_id} has its high watermark beyond its end")

    @staticmethod
    def _one(leaders: dict[Any, int], key: Any, node: SimNode, what: str) -> None:
        before = leaders.setdefault(key, node.node_id)
        if before != node.node_id:
            raise Violation(f"nodes {before} and {node.node_id} both lead {what}")

    # At rest

    def replicas_of(self, topic: str, number: int) -> list[Any]:
        found = []
        for node in self._nodes.values():
            partition = None if node.node is None else node.node.broker.partitions.get(topic, number)
            if partition is not None:
                found.append(partition)
        return found

    def check_settled(self, topics: list[tuple[str, int]]) -> None:
        """Every partition has a leader, all replicas are in sync, and hold the same."""
        images = {node.node_id: node.node.metadata.committed for node in self._nodes.values() if node.node is not None}
        offsets = {node_id: image.next_offset for node_id, image in images.items()}
        if len(set(offsets.values())) != 1:
            raise Violation(f"the nodes' metadata is not the same at the end: {offsets}")
        image = next(iter(images.values()))
        for topic, count in topics:
            found = image.topics.get(topic)
            if found is None:
                raise Violation(f"the topic {topic} is gone")
            for number in range(count):
                self._check_partition(topic, number, found.partitions[number])

    def _check_partition(self, topic: str, number: int, state: Any) -> None:
        if state.leader < 0:
            raise Violation(f"{topic}-{number} has no leader at the end")
        if state.adding_replicas or state.removing_replicas:
            raise Violation(f"the reassignment of {topic}-{number} does not end: {state}")
        if sorted(state.in_sync_replicas) != sorted(state.replicas):
            raise Violation(f"{topic}-{number} has the replicas {state.replicas}, and in sync {state.in_sync_replicas}")
        replicas = self.replicas_of(topic, number)
        if len(replicas) != len(state.replicas):
            raise Violation(f"{topic}-{number} has {len(replicas)} replicas instead of {len(state.replicas)}")
        contents = [content_of(replica) for replica in replicas]
        ends = [(replica.log_end_offset, replica.high_watermark) for replica in replicas]
        if any(content != contents[0] for content in contents) or len(set(ends)) != 1:
            raise Violation(f"the replicas of {topic}-{number} differ: {ends}")


def content_of(partition: Any) -> dict[int, bytes]:
    """All records of a log by offset."""
    found: dict[int, bytes] = {}
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20)
        if result.records is None:
            break
        data = result.records.read()
        for position, _ in iterate(data):
            for record in decode_batch(data, position):
                found[record.offset] = bytes(record.value or b"")
        offset = result.next_offset
    return found
