"""Drives compaction: chooses the dirtiest log, cleans it in another thread, swaps segments on the loop, checkpoints.

One log at a time, and one group of its segments at a time: the worker writes the new segment, the loop renames it to
``.swap``, the worker syncs the folder, the loop puts the segment into the log. If the log is deleted or changed between
these steps, the cleaning ends and its files are removed. A log that cannot be cleaned (a wrong checksum, a batch with
more keys than the map holds) is skipped until the next start, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.model.ids import TopicPartition
from barnabas.model.ports import Clock, Disk, DiskError, Offload, Random, Timer
from barnabas.runtime.partition import Partition
from barnabas.storage.cleaner import LOAD_FACTOR, Cleaning, CleaningCancelled
from barnabas.storage.cleaner_plan import DirtyRange, Source, dirty_range, make_plan
from barnabas.storage.cleaner_swap import begin_swap, find_segments, finish_swap, undo_swap
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager
from barnabas.storage.offset_map import SLOT_BYTES, new_map

RETRY_MS = 60_000
"""A log whose cleaning the disk refused (it is full, mostly) is tried again after this long."""

Report = Callable[..., None]
Then = Callable[[Exception | None], None]


class CleanerLimits(NamedTuple):
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    io_buffer_bytes: int = 512 << 10


class Cleaned(NamedTuple):
    """What the last cleaning did."""

    partition: TopicPartition
    bytes_read: int
    bytes_written: int
    duration_ms: int


class Cleaner:
    def __init__(
        self,
        *,
        partitions: Iterable[Partition],
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        random: Random,
        limits: CleanerLimits,
        offload: Offload,
        throttle: Callable[[int], None],
        report: Report,
    ) -> None:
        """``disk`` is for the worker alone, and so is ``throttle``, which it tells how many bytes it moved.

        It calls it with 0 too, after anything that took a while: so that others come to run.
        """
        self.last: Cleaned | None = None
        self._partitions = partitions
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._random = random
        self._limits = limits
        self._offload = offload
        self._report = report
        self._throttle = throttle
        self._not_before_ms: dict[Log, float] = {}
        """Logs that are left alone until then: monotonic time, or for ever."""
        self._timer: Timer | None = None
        self._round: _Round | None = None
        self._stopped = False

    def start(self) -> None:
        self._look_in(self._limits.backoff_ms)

    def limit(self, limits: CleanerLimits) -> None:
        """From the next cleaning on; a wait for one that has begun is waited to its end."""
        self._limits = limits

    def stop(self) -> None:
        """The worker may still run until it notices; its answer is no longer waited for."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            self._round.cleaning.cancelled = True
            self._round.log.is_being_cleaned = False

    def _look_in(self, delay_ms: int) -> None:
        self._timer = self._clock.call_at(self._clock.monotonic_ms() + delay_ms, self.look)

    # Choosing

    def look(self) -> None:
        """Begins to clean the dirtiest log, or looks again later."""
        if self._stopped or self._round is not None:
            return
        found = self._dirtiest()
        if found is None:
            self._look_in(self._limits.backoff_ms)
            return
        log, directory, dirty = found
        try:
            self._round = _Round(self, log, directory, self._cleaning(log, dirty))
        except (DiskError, LogOffline) as problem:
            self.ended(log, problem)
            return
        self._round.begin()

    def _dirtiest(self) -> tuple[Log, LogDirectory, DirtyRange] | None:
        best: tuple[float, Log, LogDirectory, DirtyRange] | None = None
        for partition in self._partitions:
            log = partition.log
            if len(log.bases) < 2 or log.clean_base == log.bases[-1]:
                continue
            if not log.settings.compacts or log.offline is not None:
                continue
            found = self._dirty(partition)
            if found is not None and (best is None or found[1].ratio > best[0]):
                best = (found[1].ratio, log, *found)
        return best[1:] if best is not None else None

    def _dirty(self, partition: Partition) -> tuple[LogDirectory, DirtyRange] | None:
        log = partition.log
        directory = self._logs.directory_of(log.partition)
        if directory is None or directory.failure is not None:
            return None
        if self._not_before_ms.get(log, 0) > self._clock.monotonic_ms():
            return None
        cleaned_up_to = log.cleaned_offset
        try:
            dirty = dirty_range(log, cleaned_up_to, partition.visible_end(committed_only=True), self._clock.now_ms())
        except DiskError as problem:
            self._postpone(log, problem)
            return None
        if dirty is None and cleaned_up_to is not None and log.bases[-1] <= cleaned_up_to <= log.log_end_offset:
            log.clean_base = log.bases[-1]  # not looked at again until it has rolled
        if dirty is None or not dirty.is_due(log.settings.min_cleanable_dirty_ratio):
            return None
        return directory, dirty

    def _cleaning(self, log: Log, dirty: DirtyRange) -> Cleaning:
        limit = int(self._limits.dedupe_buffer_bytes / SLOT_BYTES * LOAD_FACTOR)
        capacity = max(1, min(limit, dirty.end_offset - dirty.first_dirty_offset))
        return Cleaning(
            make_plan(log, dirty, self._clock.now_ms()),
            self._disk,
            new_map(capacity, self._random.randbytes(16)),
            chunk_bytes=self._limits.io_buffer_bytes,
            throttle=self._throttle,
        )

    # For a round

    def run(self, work: Callable[[], None], then: Then) -> None:
        def answered(problem: Exception | None) -> None:
            if not self._stopped:
                then(problem)

        self._offload(work, answered)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def ended(self, log: Log, problem: Exception | None, cleaned: Cleaned | None = None) -> None:
        self._round = None
        self.last = cleaned or self.last
        log.is_being_cleaned = False
        if problem is not None and log.offline is None and not isinstance(problem, CleaningCancelled):
            self._postpone(log, problem)
        self._look_in(0 if problem is None else self._limits.backoff_ms)

    def _postpone(self, log: Log, problem: Exception) -> None:
        for_now = isinstance(problem, DiskError)
        self._not_before_ms = {one: until for one, until in self._not_before_ms.items() if one.offline is None}
        self._not_before_ms[log] = self._clock.monotonic_ms() + RETRY_MS if for_now else float("inf")
        then = "it is tried again" if for_now else "it is left as it is"
        self._report(f"a log could not be compacted; {then}", partition=str(log.partition), reason=str(problem))

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


class _Round:
    """One cleaning of one log. Each step is one piece of work elsewhere and what follows it on the loop."""

    def __init__(self, cleaner: Cleaner, log: Log, directory: LogDirectory, cleaning: Cleaning) -> None:
        self.cleaning = cleaning
        self.log = log
        self._cleaner = cleaner
        self._directory = directory
        self._group: list[Source] = []
        self._began_ms = cleaner.monotonic_ms()

    def begin(self) -> None:
        self.log.is_being_cleaned = True
        self._cleaner.run(self.cleaning.build_map, self._next_group)

    def _next_group(self, problem: Exception | None) -> None:
        if problem is not None or self.log.offline is not None:
            self._end(problem or CleaningCancelled())
            return
        if not self.cleaning.groups:
            self._cleaner.run(self.cleaning.close, self._closed)
            return
        self._group = self.cleaning.groups.pop(0)
        self._cleaner.run(lambda: self.cleaning.clean_group(self._group), self._group_cleaned)

    def _closed(self, problem: Exception | None) -> None:
        if problem is None and self.log.offline is None:
            self.log.cleaned_offset = self.cleaning.end_offset
            self._directory.checkpoint()
        self._end(problem)

    def _group_cleaned(self, problem: Exception | None) -> None:
        cleaned = self.cleaning.cleaned
        if problem is not None or cleaned is None:
            self._end(problem)
            return
        if find_segments(self.log, self._group) is None:
            self._cleaner.run(cleaned.remove, lambda _: self._end(CleaningCancelled()))
            return
        try:
            begin_swap(self.log, cleaned)
        except DiskError as failure:
            self._give_up(failure)
            return
        self._cleaner.run(self.cleaning.sync_folder, self._group_stored)

    def _group_stored(self, problem: Exception | None) -> None:
        cleaned = self.cleaning.cleaned
        old = find_segments(self.log, self._group)
        if problem is not None or old is None or cleaned is None:
            self._give_up(problem or CleaningCancelled())
            return
        try:
            finish_swap(self.log, old, cleaned, self._cleaner.now_ms())
        except LogOffline as failure:
            self._end(failure)
            return
        self._next_group(None)

    def _give_up(self, problem: Exception) -> None:
        cleaned = self.cleaning.cleaned
        try:
            if cleaned is not None and self.log.offline is None:
                undo_swap(self.log, cleaned)
        except DiskError as failure:
            self.log.fail(f"a cleaning could not be undone: {failure}")
        self._end(problem)

    def _end(self, problem: Exception | None) -> None:
        cleaning = self.cleaning
        duration_ms = self._cleaner.monotonic_ms() - self._began_ms
        cleaned = Cleaned(self.log.partition, cleaning.bytes_read, cleaning.bytes_written, duration_ms)
        self._cleaner.ended(self.log, problem, cleaned if problem is None else None)
