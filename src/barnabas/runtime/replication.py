"""Replication of a broker: a fetcher for each leader that it follows, and its own proposals of in-sync replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Address, Clock, Network, Timer
from barnabas.runtime.in_sync_changes import InSyncChanges, ToController
from barnabas.runtime.partition import Partition
from barnabas.runtime.replica_fetcher import FetchSettings, ReplicaFetcher, Send
from barnabas.runtime.replication_throttle import ReplicationThrottle


class Replication:
    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        address_of: Callable[[int], Address | None],
        network: Network,
        to_controller: ToController,
        clock: Clock,
        settings: FetchSettings,
        max_lag_ms: int,
        throttle: ReplicationThrottle,
        report: Callable[..., None],
    ) -> None:
        """``address_of`` gives where a broker listens for other brokers; None where that is not known."""
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._address_of = address_of
        self._network = network
        self._clock = clock
        self._settings = settings
        self.throttle = throttle
        self._report = report
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed: dict[Partition, int] = {}
        self._led: dict[Partition, None] = {}
        """Partitions led that have followers."""
        self._every_ms = max(1, max_lag_ms // 2)
        self._timer: Timer | None = None
        self._changes = InSyncChanges(
            node_id=node_id, broker_epoch=broker_epoch, to_controller=to_controller, clock=clock
        )
        self.propose = self._changes.propose

    # Roles

    def lead(self, partition: Partition) -> None:
        self._unfollow(partition)
        if len(partition.replicas) > 1:
            self._led[partition] = None
            if self._timer is None:
                self._wait()
        else:
            self._led.pop(partition, None)

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Also when the same leader has a new epoch."""
        self._led.pop(partition, None)
        if self._followed.get(partition) != leader_id:
            self._unfollow(partition)
        if leader_id < 0:
            return
        self._followed[partition] = leader_id
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = self._make_fetcher(leader_id)
        fetcher.add(partition)

    def forget(self, partition: Partition) -> None:
        """Not a replica any more, or offline."""
        self._led.pop(partition, None)
        self._unfollow(partition)

    def _unfollow(self, partition: Partition) -> None:
        leader_id = self._followed.pop(partition, None)
        if leader_id is not None:
            fetcher = self._fetchers[leader_id]
            fetcher.remove(partition)
            if not len(fetcher):
                self._fetchers.pop(leader_id).close()

    @property
    def led(self) -> Iterable[Partition]:
        return self._led

    # Fetching

    def _make_fetcher(self, leader_id: int) -> ReplicaFetcher:
        return ReplicaFetcher(
            leader_id=leader_id,
            node_id=self._node_id,
            broker_epoch=self._broker_epoch,
            send=self._sender(leader_id),
            clock=self._clock,
            settings=self._settings,
            throttle=self.throttle,
            report=self._report,
        )

    def _sender(self, leader_id: int) -> Send:
        def send(request: Any, timeout_ms: int, then: Callable[[Any], None]) -> None:
            address = self._address_of(leader_id)
            if address is None:
                problem = ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader_id} has no address")
                self._clock.call_at(self._clock.monotonic_ms(), lambda: then(problem))
            else:
                self._network.send(address, "replication", request, timeout_ms, then)

        return send

    # In-sync replicas

    def _wait(self) -> None:
        self._timer = self._clock.call_at(self._clock.monotonic_ms() + self._every_ms, self._check)

    def _check(self) -> None:
        self._timer = None
        for partition in list(self._led):
            partition.check_followers()
        if self._led:
            self._wait()

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._followed.clear()
        self._led.clear()
        self._changes.close()
        if self._timer is not None:
            self._timer.cancel()
