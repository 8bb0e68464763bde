"""Periodic work of a node: retention, file deletion, checkpoints, snapshots, expiry of offsets."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.context import Broker
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import ApiError
from barnabas.model.ports import Clock, DiskError, Timer
from barnabas.node.metadata_snapshots import Snapshots
from barnabas.runtime.partition import Partition
from barnabas.storage.errors import LogOffline
from barnabas.storage.log_manager import LogManager

EVERY_MS = 10_000


class Upkeep:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        broker: Broker,
        logs: LogManager,
        snapshots: Snapshots,
        clock: Clock,
        report: Callable[..., None],
    ) -> None:
        self._broker = broker
        self._logs = logs
        self._snapshots = snapshots
        self._clock = clock
        self._report = report
        self._retention_ms = settings.log_retention_check_interval_ms
        self._checkpoint_ms = settings.log_flush_offset_checkpoint_interval_ms
        now_ms = clock.monotonic_ms()
        self._retention_at_ms = now_ms + self._retention_ms
        self._checkpoint_at_ms = now_ms + self._checkpoint_ms
        self._wait()

    def _wait(self) -> None:
        delay_ms = min(EVERY_MS, self._retention_ms)
        self._timer: Timer = self._clock.call_at(self._clock.monotonic_ms() + delay_ms, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        """Each thing is done when its interval has passed."""
        self._wait()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._retention_at_ms:
            self._retention_at_ms = now_ms + self._retention_ms
            for partition in list(self._broker.partitions):
                self._retain(partition)
        if now_ms >= self._checkpoint_at_ms:
            self._checkpoint_at_ms = now_ms + self._checkpoint_ms
            self._logs.checkpoint(self._broker.partitions.high_watermarks())
        self._logs.sweep(self._clock.now_ms())
        self._snapshots.look()
        self._broker.upkeep()

    def _retain(self, partition: Partition) -> None:
        try:
            partition.upkeep(self._clock.now_ms())
        except (ApiError, DiskError, LogOffline) as problem:
            self._report("retention did not succeed", partition=str(partition.name), reason=str(problem))
