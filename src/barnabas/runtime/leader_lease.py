"""A broker that the controller no longer hears stops leading, before another may lead in its place.

    heartbeat answered --> the lease lasts a session from when that heartbeat was sent
    lease over         --> partitions that another broker may lead stand down: clients look for the new leader, those
                           that this broker no longer hears because their connections are closed
    heartbeat answered --> what the metadata still gives to this broker is led again

The controller fences a broker a session after it last heard it, which is later. Without this, a leader that is cut off
from the cluster but not from its clients would hold their requests, and show them an ever older end of the log.

A partition whose other in-sync replicas still fetch is led on: one of them would have to lead in its place, and it
stops fetching before it does. So a cluster whose controllers are all gone goes on serving.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.model.ports import Clock, Timer
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions

ANSWERS_MS = 50
"""For the answers to waiting requests to leave before connections are closed."""
CHECK_MS = 200
"""Between two looks at the followers while the lease is over."""


class LeaderLease:
    def __init__(
        self,
        *,
        partitions: LocalPartitions,
        session_ms: int,
        follower_ms: int,
        clock: Clock,
        on_change: Callable[[], None],
        drop_connections: Callable[[], None],
        report: Callable[..., None],
    ) -> None:
        """``follower_ms``: a follower that has fetched within this time still follows. ``on_change`` is called when
        partitions stand down or are led again."""
        self._partitions = partitions
        self._session_ms = session_ms
        self._follower_ms = follower_ms
        self._clock = clock
        self._on_change = on_change
        self._drop_connections = drop_connections
        self._report = report
        self._until_ms = 0
        self._timer: Timer | None = None

    def renew(self, sent_ms: int) -> None:
        """The controller has answered a heartbeat of that time, and this broker is not fenced."""
        self._until_ms = max(self._until_ms, sent_ms + self._session_ms)
        if self._timer is None:
            self._wait(self._until_ms)
        if self._partitions.stood_down and self._until_ms > self._clock.monotonic_ms():
            self._report("the controller answers again: leading goes on", partitions=len(self._partitions.stood_down))
            self._partitions.lead_again()
            self._on_change()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, until_ms: int) -> None:
        self._timer = self._clock.call_at(until_ms, self._check)

    def _check(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._until_ms:
            self._wait(self._until_ms)
            return
        lost = [partition for partition in self._partitions.led_with_others if not self._is_followed(partition, now_ms)]
        if lost:
            self._report("the controller does not answer: partitions stand down", partitions=len(lost))
            self._partitions.stand_down(lost)
            self._on_change()
            self._clock.call_at(now_ms + ANSWERS_MS, self._drop_connections)
        self._wait(now_ms + CHECK_MS)

    def _is_followed(self, partition: Partition, now_ms: int) -> bool:
        leader = partition.leader
        if leader is None or len(leader.in_sync_replicas) == 1:
            return False
        return all(
            now_ms - leader.followers[node].fetched_ms <= self._follower_ms
            for node in leader.in_sync_replicas
            if node in leader.followers
        )
