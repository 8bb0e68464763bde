"""What must hold in a cluster: at every moment, and when it has come to rest.

During a run, over the nodes that are up and the newest metadata that any node has seen committed:

- one raft leader an epoch; one leader for each partition and leader epoch;
- a partition's high watermark does not go back while a node leads, and every later leader holds what lay below it;
- epochs of partitions do not go back; a broker epoch is the offset of the registration; no fenced broker is in sync;
- every in-sync replica holds every acknowledged record, looked at when the client hears of it and again later;
- batches below the high watermark are the same on every replica, byte for byte in their headers and checksums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.core.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.model.errors import ApiError
from barnabas.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.model.ports import DiskError
from barnabas.sim.cluster import SimNode
from barnabas.sim.history import History, Violation
from barnabas.storage.errors import LogOffline
from barnabas.wire.batch import HEADER_SIZE, CorruptBatch, iterate
from barnabas.wire.records import decode_batch

Place = tuple[bytes, int]
"""(topic id, partition)."""
COMPACTED = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics whose replicas may differ in what the cleaner has removed so far."""


class _Reached(NamedTuple):
    """What was seen of a partition so far."""

    leader_epoch: int
    high_watermark: int
    """The highest of any leader."""


class Checker:
    def __init__(self, nodes: dict[int, SimNode], history: History) -> None:
        self._nodes = nodes
        self._history = history
        self._newest = EMPTY_IMAGE
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        """(topic id, partition, leader epoch) -> the node that led it."""
        self._raft_leaders: dict[int, int] = {}
        self._reached: dict[Place, _Reached] = {}
        self._high_watermarks: dict[tuple[int, int, Place, int], int] = {}
        """(node, its start, place, leader epoch) -> high watermark while it led."""
        self._epochs: dict[Place, tuple[int, int]] = {}
        self._images: dict[int, tuple[int, MetadataImage]] = {}
        """Next offset -> the node that first had a committed image there, and the image."""
        self._incarnations: dict[tuple[int, int], bytes] = {}
        self._batches: dict[tuple[bytes, int, int], bytes] = {}
        """(topic id, partition, base offset) -> header of the committed batch."""
        self._compared: dict[tuple[int, int, Place], int] = {}
        """(node, its start, place) -> the offset up to which its batches were compared."""
        history.on_acknowledged = self._on_acknowledged

    # At every moment

    def look(self) -> None:
        self._learn_image()
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
        epoch, high_watermark = partition.leader_epoch, partition.high_watermark
        self._one(self._leaders, (*place, epoch), node, f"{partition.name} in leader epoch {epoch}")
        if high_watermark > partition.log_end_offset:
            raise Violation(f"{partition.name} on node {node.node_id} has its high watermark beyond its end")
        key = node.node_id, node.starts, place, epoch
        before = self._high_watermarks.get(key, 0)
        if high_watermark < before:
            raise Violation(f"{partition.name}: its leader {node.node_id} goes back from {before} to {high_watermark}")
        self._high_watermarks[key] = high_watermark
        reached = self._reached.get(place, _Reached(-1, 0))
        if epoch > reached.leader_epoch and partition.log_end_offset < reached.high_watermark:
            raise Violation(
                f"{partition.name} was committed up to {reached.high_watermark}, and its leader {node.node_id} of "
                f"epoch {epoch} ends at {partition.log_end_offset}"
            )
        self._reached[place] = _Reached(max(epoch, reached.leader_epoch), max(high_watermark, reached.high_watermark))

    @staticmethod
    def _one(leaders: dict[Any, int], key: Any, node: SimNode, what: str) -> None:
        before = leaders.setdefault(key, node.node_id)
        if before != node.node_id:
            raise Violation(f"nodes {before} and {node.node_id} both lead {what}")

    # Metadata

    def _learn_image(self) -> MetadataImage:
        """The newest that is committed; what changed since the last look is checked."""
        before = self._newest
        for node in self._nodes.values():
            if node.node is not None and node.node.metadata.committed.next_offset > self._newest.next_offset:
                self._newest = node.node.metadata.committed
                self._images.setdefault(self._newest.next_offset, (node.node_id, self._newest))
        if self._newest is not before:
            self._check_brokers(before, self._newest)
            self._check_image(self._newest)
        return self._newest

    def _check_brokers(self, before: MetadataImage, image: MetadataImage) -> None:
        """A broker epoch is the offset of its registration: who has read so far knows of it."""
        for broker in image.brokers.values():
            key = broker.node_id, broker.broker_epoch
            if key not in self._incarnations and not before.next_offset <= broker.broker_epoch < image.next_offset:
                raise Violation(
                    f"node {broker.node_id} got the broker epoch {broker.broker_epoch} between the metadata offsets "
                    f"{before.next_offset} and {image.next_offset}"
                )
            if self._incarnations.setdefault(key, broker.incarnation_id) != broker.incarnation_id:
                raise Violation(f"broker epoch {broker.broker_epoch} of node {broker.node_id} is used twice")

    def _check_image(self, image: MetadataImage) -> None:
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                name = f"{topic.name}-{number}"
                before = self._epochs.get((topic.topic_id, number), (0, 0))
                if state.leader_epoch < before[0] or state.partition_epoch < before[1]:
                    raise Violation(f"the epochs of {name} go back from {before}: {state}")
                self._epochs[topic.topic_id, number] = state.leader_epoch, state.partition_epoch
                fenced = [
                    node for node in state.in_sync_replicas if node in image.brokers and image.brokers[node].fenced
                ]
                if fenced:
                    raise Violation(f"{name} has {fenced} in sync, which the metadata fences: {state}")

    # Acknowledged records

    def _on_acknowledged(self, topic: str, number: int, offset: int) -> None:
        self._check_in_sync(self._learn_image(), topic, number, offset)

    def _check_in_sync(self, image: MetadataImage, topic: str, number: int, offset: int) -> None:
        found = image.topics.get(topic)
        if found is None:
            return
        for node_id in found.partitions[number].in_sync_replicas:
            node = self._nodes[node_id].node
            if node is None or not self._nodes[node_id].is_serving:
                continue
            replica = next((each for each in node.broker.partitions if each.name == (topic, number)), None)
            if replica is not None and replica.log.offline is None and replica.log_end_offset <= offset:
                raise Violation(
                    f"{topic}-{number}: offset {offset} is acknowledged, and node {node_id}, which is in sync, ends at "
                    f"{replica.log_end_offset}"
                )

    # Now and then

    def look_closely(self) -> None:
        """What takes longer."""
        self.look()
        for (topic, number), offset in self._history.last_acknowledged.items():
            self._check_in_sync(self._newest, topic, number, offset)
        self._compare_images()
        for node in self._nodes.values():
            if node.node is None or not node.is_serving:
                continue
            for partition in node.node.broker.partitions:
                if partition.name.topic not in COMPACTED:
                    self._compare_batches(node, partition)

    def _compare_images(self) -> None:
        """Nodes that have read as far as each other know the same, at the same time or not."""
        for node in self._nodes.values():
            if node.node is None:
                continue
            image = node.node.metadata.committed
            other, expected = self._images.setdefault(image.next_offset, (node.node_id, image))
            if image.topics != expected.topics or image.brokers != expected.brokers:
                raise Violation(f"nodes {other} and {node.node_id} differ in their metadata at {image.next_offset}")

    def _compare_batches(self, node: SimNode, partition: Any) -> None:
        place = partition.topic_id, partition.name.partition
        key = node.node_id, node.starts, place
        offset, end = max(self._compared.get(key, 0), partition.log_start_offset), partition.high_watermark
        try:
            while offset < end:
                result = partition.log.read(offset, 1 << 20, max_offset=end)
                if result.records is None:
                    break
                data = result.records.read()
                for position, header in iterate(data):
                    self._compare_batch(node, partition, header.base_offset, data[position : position + HEADER_SIZE])
                offset = result.next_offset
        except (ApiError, DiskError, LogOffline, CorruptBatch):
            return  # its disk fails, or the log has just been removed
        self._compared[key] = offset

    def _compare_batch(self, node: SimNode, partition: Any, offset: int, header: bytes) -> None:
        key = partition.topic_id, partition.name.partition, offset
        if self._batches.setdefault(key, header) != header:
            raise Violation(f"{partition.name}: node {node.node_id} has another committed batch at offset {offset}")

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
        nodes = [node.node for node in self._nodes.values() if node.node is not None]
        image = self._learn_image()
        high_watermarks = [node.driver.high_watermark for node in nodes]
        is_equal = all(
            (node.metadata.committed.topics, node.metadata.committed.brokers) == (image.topics, image.brokers)
            for node in nodes
        )
        if len(set(high_watermarks)) != 1 or not is_equal:
            raise Violation(f"the nodes' metadata is not the same at the end, at {high_watermarks}")
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
    data = bytes_of(partition)
    return {
        record.offset: bytes(record.value or b"")
        for position, _ in iterate(data)
        for record in decode_batch(data, position)
    }


def bytes_of(partition: Any) -> bytes:
    """All batches of a log."""
    found = bytearray()
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20)
        if result.records is None:
            break
        found += result.records.read()
        offset = result.next_offset
    return bytes(found)
