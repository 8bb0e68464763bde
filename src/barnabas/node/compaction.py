"""The cleaner of a node: its driver on the loop, its thread, and its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.ports import Clock, Random
from barnabas.node.ports import NodeDisk, Workers
from barnabas.runtime.cleaner import Cleaner, CleanerLimits
from barnabas.runtime.partition import Partition
from barnabas.storage.log_manager import LogManager


class Compaction:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        partitions: Iterable[Partition],
        logs: LogManager,
        disk: NodeDisk,
        workers: Workers,
        clock: Clock,
        random: Random,
        report: Callable[..., None],
    ) -> None:
        self._worker = workers("barnabas-cleaner")
        self._disk = disk.for_thread()
        self._throttle = self._worker.throttle(settings.log_cleaner_io_max_bytes_per_second)
        self.cleaner = Cleaner(
            partitions=partitions,
            logs=logs,
            disk=self._disk,
            clock=clock,
            random=random,
            limits=_limits(settings),
            offload=self._worker,
            throttle=self._throttle,
            report=report,
        )
        if settings.log_cleaner_enable:
            self.cleaner.start()

    def obey(self, settings: BrokerSettings) -> None:
        """New settings: the throttle's at once, the others from the next cleaning on."""
        self._throttle.limit(settings.log_cleaner_io_max_bytes_per_second)
        self.cleaner.limit(_limits(settings))

    def close(self) -> None:
        """A cleaning under way is given up; when this returns, nothing more is written."""
        self.cleaner.stop()
        self._worker.close()
        self._disk.close_thread()


def _limits(settings: BrokerSettings) -> CleanerLimits:
    return CleanerLimits(
        backoff_ms=settings.log_cleaner_backoff_ms,
        dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
        io_buffer_bytes=settings.log_cleaner_io_buffer_size,
    )
