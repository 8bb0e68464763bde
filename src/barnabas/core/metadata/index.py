"""An index over the partitions of the image, by broker and by state.

Decisions about one broker look at its own partitions only, however large the cluster is. The index is derived from the
image alone: replay updates it with what changed. Members are kept in insertion order, internal topics first, since
groups and transactions wait for those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import MetadataImage, PartitionImage
from barnabas.model.ids import INTERNAL_TOPICS, NO_LEADER

Key = tuple[bytes, int]
"""(topic id, partition)."""


class PartitionSet:
    """An ordered set of partitions, those of internal topics first."""

    __slots__ = ("_internal", "_others")

    def __init__(self) -> None:
        self._internal: dict[Key, None] = {}
        self._others: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._internal) + len(self._others)

    def __iter__(self) -> Iterator[Key]:
        return chain(self._internal, self._others)

    def __contains__(self, key: object) -> bool:
        return key in self._internal or key in self._others

    def add(self, key: Key, *, internal: bool = False) -> None:
        (self._internal if internal else self._others)[key] = None

    def discard(self, key: Key) -> None:
        self._internal.pop(key, None)
        self._others.pop(key, None)

    def update(self, other: PartitionSet) -> None:
        self._internal.update(other._internal)
        self._others.update(other._others)


_NONE = PartitionSet()


class PartitionIndex:
    def __init__(self) -> None:
        self.leaderless = PartitionSet()
        self.reassigning = PartitionSet()
        self.not_preferred = PartitionSet()
        """Led, but not by the first of the replicas."""
        self._led: defaultdict[int, PartitionSet] = defaultdict(PartitionSet)
        self._in_sync: defaultdict[int, PartitionSet] = defaultdict(PartitionSet)
        self._eligible: defaultdict[int, PartitionSet] = defaultdict(PartitionSet)
        self._leaderless_of: defaultdict[int, PartitionSet] = defaultdict(PartitionSet)
        self._directories: defaultdict[bytes, PartitionSet] = defaultdict(PartitionSet)

    @classmethod
    def of(cls, image: MetadataImage) -> PartitionIndex:
        index = cls()
        for topic in image.topics.values():
            index._replace(topic.topic_id, topic.name, (), topic.partitions)
        return index

    # Questions

    def led_by(self, node_id: int) -> PartitionSet:
        return self._led.get(node_id, _NONE)

    def in_sync_with(self, node_id: int) -> PartitionSet:
        """Partitions whose in-sync set has the broker."""
        return self._in_sync.get(node_id, _NONE)

    def eligible_on(self, node_id: int) -> PartitionSet:
        """Partitions whose eligible leader replicas have the broker."""
        return self._eligible.get(node_id, _NONE)

    def leaderless_on(self, node_id: int) -> PartitionSet:
        """Partitions without a leader that have a replica on the broker."""
        return self._leaderless_of.get(node_id, _NONE)

    def in_directory(self, directory: bytes) -> PartitionSet:
        return self._directories.get(directory, _NONE)

    def brokers_in_sync(self) -> list[int]:
        """Brokers that are in some in-sync set, registered or not."""
        return [node_id for node_id, partitions in self._in_sync.items() if partitions]

    def eligible_partitions(self) -> PartitionSet:
        """Partitions with eligible leader replicas."""
        found = PartitionSet()
        for partitions in self._eligible.values():
            found.update(partitions)
        return found

    # Replay

    def apply(self, delta: MetadataDelta) -> None:
        for topic in delta.removed_topics.values():
            self._replace(topic.topic_id, topic.name, topic.partitions, ())
        for topic_id in delta.touched_topics:
            before = delta.base.topics_by_id.get(topic_id)
            after = delta.result.topics_by_id[topic_id]
            self._replace(topic_id, after.name, before.partitions if before else (), after.partitions)

    def _replace(
        self, topic_id: bytes, name: str, before: tuple[PartitionImage, ...], after: tuple[PartitionImage, ...]
    ) -> None:
        internal = name in INTERNAL_TOPICS
        for number in range(max(len(before), len(after))):
            old = before[number] if number < len(before) else None
            new = after[number] if number < len(after) else None
            if old is not new:
                key = (topic_id, number)
                if old is not None:
                    for members in self._places(old):
                        members.discard(key)
                if new is not None:
                    for members in self._places(new):
                        members.add(key, internal=internal)

    def _places(self, partition: PartitionImage) -> Iterator[PartitionSet]:
        """Every set that a partition in this state is a member of."""
        for node_id in partition.in_sync_replicas:
            yield self._in_sync[node_id]
        for node_id in partition.eligible_leader_replicas:
            yield self._eligible[node_id]
        for directory in partition.directories:
            yield self._directories[directory]
        if partition.is_reassigning:
            yield self.reassigning
        if partition.leader == NO_LEADER:
            yield self.leaderless
            for node_id in partition.replicas:
                yield self._leaderless_of[node_id]
        else:
            yield self._led[partition.leader]
            if partition.leader != partition.replicas[0]:
                yield self.not_preferred
