"""Where the replicas of a cluster are, what each broker holds, and which broker is best for one more replica.

The replicas of a partition are in order: the first is the preferred leader. Brokers without a rack count as one rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from barnabas.model.ids import TopicPartition

Assignment: TypeAlias = dict[TopicPartition, tuple[int, ...]]
Replicas: TypeAlias = Mapping[TopicPartition, Sequence[int]]
Shares: TypeAlias = tuple[float, float]

SMALL_BYTES = 64 << 20
"""Where brokers hold less than this on average, differences in bytes count for little: moves would cost more."""


class PlanBroker(NamedTuple):
    node_id: int
    rack: str | None = None


class PlanError(Exception):
    """What was asked for cannot be done with these brokers. One sentence."""


class Layout:
    def __init__(
        self,
        brokers: Iterable[PlanBroker],
        assignment: Mapping[TopicPartition, Sequence[int]],
        sizes: Mapping[TopicPartition, int],
    ) -> None:
        """``sizes`` are bytes of one replica of each partition; what is missing is 0."""
        self.racks = {broker.node_id: broker.rack for broker in brokers}
        self._rack_count = max(1, len(set(self.racks.values())))
        self.assignment: Assignment = {}
        self.replicas: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self._sizes = sizes
        self._mean_replicas, self._mean_bytes = 1.0, float(SMALL_BYTES)
        self._total_replicas = self._total_bytes = 0
        for partition, replicas in assignment.items():
            self.assign(partition, replicas)

    def size(self, partition: TopicPartition) -> int:
        return self._sizes.get(partition, 0)

    def assign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        self._count(partition, self.assignment.get(partition, ()), -1)
        self.assignment[partition] = tuple(replicas)
        self._count(partition, replicas, 1)
        brokers = max(1, len(self.racks))
        self._mean_replicas = max(1.0, self._total_replicas / brokers)
        self._mean_bytes = max(float(SMALL_BYTES), self._total_bytes / brokers)

    def _count(self, partition: TopicPartition, replicas: Sequence[int], sign: int) -> None:
        for node_id in replicas:
            self.replicas[node_id] += sign
            self.bytes[node_id] += sign * self.size(partition)
        self._total_replicas += sign * len(replicas)
        self._total_bytes += sign * len(replicas) * self.size(partition)
        if replicas:
            self.leaders[replicas[0]] += sign

    # Load: a pair of shares, of replicas and of bytes; 1 for a broker that holds its part of them

    def shares(self, node_id: int) -> Shares:
        return self.replicas[node_id] / self._mean_replicas, self.bytes[node_id] / self._mean_bytes

    def weight(self, partition: TopicPartition) -> Shares:
        """What one replica adds to the shares of its broker."""
        return 1 / self._mean_replicas, self.size(partition) / self._mean_bytes

    def cost(self, node_id: int) -> float:
        """The sum over all brokers is least where both shares are even."""
        replicas, held = self.shares(node_id)
        return replicas * replicas + held * held

    # Racks

    def rack_limit(self, replication_factor: int) -> int:
        """How many replicas of a partition one rack may hold where they are spread as far as they can be."""
        return -(-replication_factor // self._rack_count)

    def in_rack(self, replicas: Iterable[int], node_id: int) -> int:
        """How many of the replicas share the broker's rack; the broker itself does not count."""
        rack = self.racks.get(node_id)
        return sum(each != node_id and each in self.racks and self.racks[each] == rack for each in replicas)

    # Choosing

    def candidate(self, kept: Sequence[int]) -> int | None:
        """The broker for one more replica beside ``kept``: another rack first, then the least loaded."""
        free = [node_id for node_id in self.racks if node_id not in kept]
        return min(free, key=lambda node_id: (self.in_rack(kept, node_id), self.cost(node_id), node_id), default=None)


def changes(before: Replicas, after: Replicas) -> Assignment:
    """The partitions whose replicas, or their order, differ."""
    return {
        partition: tuple(replicas)
        for partition, replicas in sorted(after.items())
        if tuple(replicas) != tuple(before.get(partition, ()))
    }


def moved_bytes(before: Replicas, moves: Replicas, sizes: Mapping[TopicPartition, int]) -> int:
    """What has to be copied for the moves."""
    return sum(
        sizes.get(partition, 0) * len(set(replicas) - set(before.get(partition, ())))
        for partition, replicas in moves.items()
    )
