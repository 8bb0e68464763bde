"""Metadata snapshots: when one is due, writing the image off the loop, then deleting the log before it.

An image is immutable, so another thread can write it. Records decided meanwhile are in the log after the image and
count towards the next snapshot.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.metadata.image import MetadataImage
from barnabas.model.ports import Clock, Disk, DiskError, Offload
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.storage.errors import LogOffline

RETRY_MS = 60_000
"""A snapshot that the disk refused (it is full, mostly) is tried again after this long."""


class Snapshotter:
    def __init__(
        self,
        *,
        driver: RaftDriver,
        committed: Callable[[], MetadataImage],
        disk: Disk,
        clock: Clock,
        max_bytes: int,
        max_age_ms: int,
        offload: Offload,
        breathe: Callable[[], None],
        report: Callable[..., None],
    ) -> None:
        """``disk`` is for the worker alone, and so is ``breathe``, which it calls between records.

        ``max_bytes`` are those of the log since the last snapshot; ``max_age_ms`` of 0 takes none by time.
        """
        self._driver = driver
        self._committed = committed
        self._disk = disk
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_age_ms = max_age_ms
        self._offload = offload
        self._breathe = breathe
        self._report = report
        self._since_ms = clock.monotonic_ms()
        self._not_before_ms = self._since_ms
        self._is_writing = False
        self._is_stopped = False

    def look(self) -> None:
        """Begins a snapshot where one is due. Asked after every change, and now and then."""
        if self._is_writing or self._is_stopped or not self._is_due():
            return
        self._is_writing = True
        image = self._committed()
        covered_bytes = self._driver.bytes_since_snapshot
        write = self._driver.snapshot_of(image)
        self._offload(
            lambda: write(self._disk, self._breathe),
            lambda problem: self._written(image, covered_bytes, problem),
        )

    def _is_due(self) -> bool:
        grown = self._driver.bytes_since_snapshot
        now_ms = self._clock.monotonic_ms()
        is_old = bool(self._max_age_ms) and now_ms - self._since_ms >= self._max_age_ms
        return (grown >= self._max_bytes or (grown > 0 and is_old)) and now_ms >= self._not_before_ms

    def _written(self, image: MetadataImage, covered_bytes: int, problem: Exception | None) -> None:
        self._is_writing = False
        if self._is_stopped:
            return  # the next start finds the snapshot, and the log before it
        if problem is None:
            try:
                self._driver.let_go_before(image, covered_bytes)
            except (DiskError, LogOffline) as failure:
                problem = failure
        now_ms = self._clock.monotonic_ms()
        if problem is not None:
            self._not_before_ms = now_ms + RETRY_MS
            self._report("a metadata snapshot could not be taken", reason=str(problem) or type(problem).__name__)
            return
        self._since_ms = now_ms
        self.look()  # for what came meanwhile

    def stop(self) -> None:
        self._is_stopped = True
