"""Throttles replicas that are not in sync (KIP-73), so that a reassignment leaves room for clients.

leader.replication.throttled.rate limits what this broker sends to such followers in all,
follower.replication.throttled.rate what it fetches for such replicas of its own. Only the replicas that the topics'
throttled.replicas settings name count, and never those in sync: throttled, they would hold up acks=all.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.replication.throttle import RateLimit, is_throttled
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.ports import Clock
from barnabas.runtime.partition import Partition


class ReplicationThrottle:
    def __init__(self, node_id: int, clock: Clock, is_in_sync: Callable[[Partition], bool]) -> None:
        """``is_in_sync`` says whether the metadata counts this broker among a partition's in-sync replicas."""
        self._node_id = node_id
        self._clock = clock
        self._is_in_sync = is_in_sync
        self._leading = RateLimit()
        self._following = RateLimit()

    def obey(self, settings: BrokerSettings) -> None:
        now_ms = self._clock.monotonic_ms()
        self._leading.set(settings.leader_replication_throttled_rate, now_ms)
        self._following.set(settings.follower_replication_throttled_rate, now_ms)

    # Leading

    def holds_back(self, partition: Partition, follower: int) -> bool:
        """Whether a follower gets nothing for now."""
        return self._counts(partition, follower) and self._leading.wait_ms(self._clock.monotonic_ms()) > 0

    def on_sent(self, partition: Partition, follower: int, size_bytes: int) -> None:
        if self._counts(partition, follower):
            self._leading.charge(size_bytes, self._clock.monotonic_ms())

    def _counts(self, partition: Partition, follower: int) -> bool:
        leader = partition.leader
        return (
            self._leading.is_set
            and leader is not None
            and follower not in leader.in_sync_replicas
            and is_throttled(
                partition.settings.leader_replication_throttled_replicas, partition.name.partition, self._node_id
            )
        )

    # Following

    def on_fetched(self, partition: Partition, size_bytes: int) -> int:
        """For how many milliseconds the partition must not be fetched after this."""
        if (
            not self._following.is_set
            or not is_throttled(
                partition.settings.follower_replication_throttled_replicas, partition.name.partition, self._node_id
            )
            or self._is_in_sync(partition)
        ):
            return 0
        now_ms = self._clock.monotonic_ms()
        self._following.charge(size_bytes, now_ms)
        return self._following.wait_ms(now_ms)
