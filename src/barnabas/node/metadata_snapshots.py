"""Metadata snapshots of a node: when they are due, and the thread that writes them."""

from __future__ import annotations

import math
from collections.abc import Callable

from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.ports import Clock
from barnabas.node.ports import NodeDisk, Workers
from barnabas.runtime.cluster_metadata import ClusterMetadata
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.runtime.snapshot_schedule import Snapshotter


class Snapshots:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        driver: RaftDriver,
        metadata: ClusterMetadata,
        disk: NodeDisk,
        workers: Workers,
        clock: Clock,
        report: Callable[..., None],
    ) -> None:
        self._worker = workers("barnabas-snapshots")
        self._disk = disk.for_thread()
        throttle = self._worker.throttle(math.inf)
        self._snapshotter = Snapshotter(
            driver=driver,
            committed=lambda: metadata.committed,
            disk=self._disk,
            clock=clock,
            max_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
            max_age_ms=settings.metadata_log_max_snapshot_interval_ms,
            offload=self._worker,
            breathe=lambda: throttle(0),
            report=report,
        )
        self.look = self._snapshotter.look

    def close(self) -> None:
        """When this returns, nothing more is written."""
        self._snapshotter.stop()
        self._worker.close()
        self._disk.close_thread()
