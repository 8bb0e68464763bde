"""The log of one partition: a list of segments; appends go to the last one.

Theory of operation. A batch is checked, gets its offset and leader epoch patched in, and is written with one call at
the place where the log ends *as this object knows it*. Only after the write has returned do the end offset, the
indexes and the producer state move; so a failed write leaves nothing behind but bytes beyond the end, and those are
cut off before anything else is written. What cannot be cut, and any failed sync, takes the log offline (LogOffline):
the caller answers KAFKA_STORAGE_ERROR and the process has to reopen the log. A write that failed and was cut (a full
disk, mostly) is raised as DiskError and leaves the log usable: unlike Kafka, which gives the whole folder up, we go
on when retention or the operator has made room, since nothing was promised that is not there. A file system that is
gone or read-only takes the log offline at once, so that another replica leads.

Durability. ``flushed_offset`` is the recovery point: everything below it has been synced, with its folder entries,
its closed segments' indexes and the leader epochs. A crash can take only what lies at or after it; recovery
(``loader``) scans the segments from there on. The runtime syncs off the loop: ``begin_flush`` says which files and
folders, ``finish_flush`` moves the recovery point.

The high watermark is not known here: the runtime passes it where it matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from barnabas.model.errors import ApiError, ErrorCode, invariant
from barnabas.model.ids import TopicPartition, Uuid
from barnabas.model.ports import Disk, DiskError, FileMissing, Random
from barnabas.model.topic_settings import TopicSettings
from barnabas.storage import flush_plan, loader, log_read, lookup, retention
from barnabas.storage.damage import Report, unheard
from barnabas.storage.epoch_cache import EpochCache
from barnabas.storage.errors import LogOffline, is_gone
from barnabas.storage.flush_plan import FlushTask
from barnabas.storage.follower import append_batches
from barnabas.storage.log_read import RECENT_ENDS, ReadResult, RecentPlaces
from barnabas.storage.producer_snapshot import Snapshots
from barnabas.storage.producer_state import Origin, ProducerState
from barnabas.storage.segment import RollLimits, Segment
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.storage.validation import BatchRules, Validation, check_produced, needs_rewrite, read_one_header, rewrite
from barnabas.wire.batch import CONTROL, TRANSACTIONAL, patch_offset_and_epoch
from barnabas.wire.records import ControlType, decode_batch, read_control_type, read_coordinator_epoch

T = TypeVar("T")

WRITEBACK_BYTES = 4 << 20
"""The kernel is asked to begin writing after this many bytes, so that no append runs into its dirty limit."""

RECENT_APPENDS = 16
"""Ends of the last appends, among which the high watermark mostly is."""

PRODUCER_EXPIRATION_MS = 24 * 3600 * 1000


class Appended(Struct, frozen=True, gc=False):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 where records keep their producer's time."""
    log_start_offset: int
    duplicate: bool = False
    """Nothing was written: the producer had sent this batch before."""
    size: int = 0


class Log:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        *,
        topic_id: Uuid | None = None,
        producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        validation: Validation = Validation.RECORDS,
        random: Random | None = None,
        on_failure: Callable[[Log, str], None] | None = None,
        report: Report = unheard,
    ) -> None:
        """Not for callers: ``Log.open`` makes a log that can be used."""
        self.disk = disk
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.validation = validation
        self.random = random
        self.on_failure = on_failure
        self.report = report  # damage that was found, and what recovery took away
        self.offline: LogOffline | None = None
        self.segments: list[Segment] = []  # ascending by base offset, never empty once open
        self.bases: list[int] = []  # their base offsets, for bisection
        self.producers = ProducerState()
        self.epochs = EpochCache(disk, directory)
        self.snapshots = Snapshots(disk, directory, [])
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.doomed: list[tuple[int, str]] = []  # (when to remove, path) of files renamed to .deleted
        self.parent_unsynced = False  # the partition's folder itself is new
        self.cleaned_offset: int | None = None  # compacted up to here, as far as the cleaner knows
        self.is_stored = False  # indexes and producers on the disk are those of the log's end
        self.clean_base = -1  # the active segment's base offset when all before it was last found clean
        self.is_being_cleaned = False  # the cleaner reads the closed segments: they are not deleted meanwhile
        self.is_closed = False
        self.truncations = 0
        self.now_ms = 0  # the latest time that a caller has told
        self.oldest_unflushed_ms = 0
        self._writeback_from = 0
        self.read_ends = RecentPlaces(RECENT_ENDS)
        self.append_ends = RecentPlaces(RECENT_APPENDS)
        self.update_settings(settings)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        *,
        now_ms: int,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: Uuid | None = None,
        producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        validation: Validation = Validation.RECORDS,
        random: Random | None = None,
        on_failure: Callable[[Log, str], None] | None = None,
        report: Report = unheard,
    ) -> Log:
        """Opens or creates the log in its folder; recovers what a crash may have torn unless ``clean``."""
        log = cls(
            disk,
            directory,
            partition,
            settings,
            topic_id=topic_id,
            producer_id_expiration_ms=producer_id_expiration_ms,
            validation=validation,
            random=random,
            on_failure=on_failure,
            report=report,
        )
        log.now_ms = now_ms
        loader.load(log, now_ms=now_ms, clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)
        return log

    def update_settings(self, settings: TopicSettings) -> None:
        self.settings = settings
        self.rules = BatchRules(settings, self.validation)
        self.limits = RollLimits(
            segment_bytes=settings.segment_bytes,
            segment_ms=min(settings.segment_ms, settings.max_compaction_lag_ms)
            if settings.compacts
            else settings.segment_ms,
            segment_index_bytes=settings.segment_index_bytes,
        )
        if self.segments:
            self.active.index_interval_bytes = settings.index_interval_bytes

    # What it is

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def local_log_start_offset(self) -> int:
        return max(self.log_start_offset, self.bases[0])

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.flushed_offset

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return self.producers.first_unstable_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction is decided, and the decision is below the high watermark."""
        return self.producers.last_stable_offset(high_watermark)

    def __repr__(self) -> str:
        return f"<Log {self.partition} {self.log_start_offset}..{self.log_end_offset}>"

    # Appending

    def append_as_leader(
        self,
        batch: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        guard: object = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Checks and appends one batch, whose bytes are changed in place. Raises ApiError, DiskError, LogOffline."""
        if self.offline is not None:
            raise self.offline
        self.now_ms = now_ms
        rules = self.rules
        if origin is Origin.CLIENT:
            header, max_timestamp = check_produced(batch, rules, now_ms)
        else:
            header = read_one_header(batch)
            max_timestamp = header.max_timestamp
        marker: tuple[int, bool] | None = None
        transactional = header.attributes & TRANSACTIONAL != 0
        if header.producer_id >= 0:
            if header.attributes & CONTROL:
                marker = self._read_marker(batch)
                if marker is not None:
                    self.producers.check_marker(
                        header.producer_id, header.producer_epoch, marker[0], transaction_version
                    )
            else:
                repeated = self.producers.check(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    transactional,
                    origin,
                    guard,
                )
                if repeated is not None:
                    time_ms = repeated.timestamp if rules.log_append_time else -1
                    return Appended(repeated.first_offset, repeated.last_offset, time_ms, self.log_start_offset, True)
        append_time_ms = -1
        if max_timestamp != header.max_timestamp or (rules.may_rewrite and needs_rewrite(header, rules, origin)):
            batch = rewrite(batch, header, rules, now_ms, max_timestamp)
            if rules.log_append_time:
                append_time_ms = max_timestamp = now_ms
        size = len(batch)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments[-1]
        if segment.must_roll(size, last_offset, max_timestamp, now_ms, self.limits):
            segment = self.roll(now_ms)
        if size > self.limits.segment_bytes:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, more than a segment")
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        patch_offset_and_epoch(batch, base_offset, leader_epoch)
        self.write(segment, batch)
        self.on_appended(segment, size, last_offset, max_timestamp)
        if header.producer_id >= 0:
            if marker is not None:
                entry = self.producers.complete(
                    header.producer_id, header.producer_epoch, marker[0], base_offset, max_timestamp, marker[1], now_ms
                )
                if entry is not None:
                    self.index_aborted(segment, entry)
            elif not header.attributes & CONTROL:
                self.producers.remember(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    base_offset,
                    last_offset,
                    max_timestamp,
                    transactional,
                    now_ms,
                )
        return Appended(base_offset, last_offset, append_time_ms, self.log_start_offset, False, size)

    def append_as_follower(self, batches: memoryview) -> int:
        """Appends batches that a leader has numbered; a batch cut short at the end is left out.

        Returns the new log end offset. Raises ApiError (CORRUPT_MESSAGE, offsets that go back), DiskError, LogOffline.
        """
        self.check_online()
        append_batches(self, batches, self.now_ms)
        return self.log_end_offset

    def write(self, segment: Segment, data: memoryview) -> None:
        """One write at the end of the segment; what a failed one left is cut off, or the log goes offline."""
        try:
            (segment.log or segment.open_log()).write((data,), segment.size)
        except DiskError as error:
            self._check_present(error)
            self._cut(segment, error)
            raise

    def _check_present(self, error: DiskError) -> None:
        if is_gone(error):
            raise self.fail(f"its folder cannot be written to: {error}") from error

    def _cut(self, segment: Segment, error: DiskError) -> None:
        file = segment.log
        if file is None:
            return  # it could not even be opened
        try:
            if file.size() > segment.size:
                file.truncate(segment.size)
            whole = file.size() == segment.size
        except DiskError as second:
            raise self.fail(f"{error}; cutting the torn write failed too: {second}") from second
        if not whole:
            raise self.fail(f"{error}; the file is shorter than the log") from error

    def on_appended(self, segment: Segment, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch has been written at the segment's end: now it is part of the log."""
        if self.log_end_offset == self.flushed_offset:
            self.oldest_unflushed_ms = self.now_ms
        self.log_end_offset = last_offset + 1
        self.is_stored = False
        try:
            segment.appended(size, last_offset, max_timestamp)
        except DiskError as error:
            raise self.fail(f"storing an index failed: {error}") from error
        end = segment.size
        self.append_ends.put(last_offset + 1, segment, end)
        if end - self._writeback_from >= WRITEBACK_BYTES:
            segment.open_log().start_writeback(self._writeback_from, end - self._writeback_from)
            self._writeback_from = end

    @staticmethod
    def _read_marker(batch: memoryview) -> tuple[int, bool] | None:
        """(coordinator epoch, aborted) of a transaction marker; None for other control records."""
        records = decode_batch(batch)
        kind = read_control_type(records[0]) if records else None
        if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
            return None
        return read_coordinator_epoch(records[0]), kind is ControlType.ABORT

    def index_aborted(self, segment: Segment, entry: AbortedTransaction) -> None:
        try:
            if not segment.transaction_index.entries:
                segment.note_new_name()
            segment.transaction_index.append(entry)
        except DiskError as error:
            raise self.fail(f"an aborted transaction could not be indexed: {error}") from error

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seals the active segment and begins another at the end of the log (or later, after a gap)."""
        try:
            return self._roll(now_ms, base_offset)
        except DiskError as error:
            self._check_present(error)
            raise

    def _roll(self, now_ms: int, base_offset: int | None) -> Segment:
        base = self.log_end_offset if base_offset is None else base_offset
        active = self.active
        if active.size:
            active.seal()
            self.producers.end_offset = self.log_end_offset
            self.snapshots.take(self.producers)
            segment = self.add_segment(base, now_ms)
            active.next_offset = base
            return segment
        invariant(base > active.base_offset, f"{self!r}: a segment at {base} exists already")
        segment = self.add_segment(base, now_ms)
        del self.segments[-2], self.bases[-2]
        active.remove()
        return segment

    def add_segment(self, base_offset: int, now_ms: int) -> Segment:
        interval = self.settings.index_interval_bytes
        segment = Segment(self.disk, self.directory, base_offset, created_ms=now_ms, index_interval_bytes=interval)
        if self.random is not None and self.settings.segment_jitter_ms:
            segment.jitter_ms = self.random.randrange(0, self.settings.segment_jitter_ms)
        try:
            if base_offset:
                segment.open_log()  # an empty log that does not begin at 0 must remember where it does
            if self.settings.preallocate:
                segment.allocate(self.settings.segment_bytes)
        except DiskError:
            self._remove_unused(segment)
            raise
        self.segments.append(segment)
        self.bases.append(base_offset)
        self._writeback_from = 0
        return segment

    def _remove_unused(self, segment: Segment) -> None:
        """An empty file that is not part of the log would be taken for its end at the next start."""
        try:
            segment.remove()
        except DiskError as error:
            raise self.fail(f"a segment that could not be allocated cannot be removed: {error}") from error

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        minimum_one: bool = True,
        aborted: bool = False,
    ) -> ReadResult:
        """Whole batches from the one that holds ``offset``, none with a record at or after ``max_offset``.

        ``minimum_one`` lets the first batch be larger than ``max_bytes``; ``aborted`` asks for the transactions that a
        read_committed consumer must skip. Raises ApiError(OFFSET_OUT_OF_RANGE), CorruptBatch.
        """
        if self.offline is not None:
            raise self.offline
        if max_offset is None or max_offset > self.log_end_offset:
            max_offset = self.log_end_offset
        return log_read.read(self, offset, max_bytes, max_offset, minimum_one, aborted)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the range."""
        return log_read.aborted_transactions(self, start_offset, end_offset)

    def forget_places(self) -> None:
        """After segments were cut or removed."""
        self.read_ends.clear()
        self.append_ends.clear()

    # Looking up

    def offset_for_timestamp(self, timestamp: int) -> lookup.TimestampOffset | None:
        """The first record at or after the timestamp."""
        self.check_online()
        return lookup.offset_for_timestamp(self, timestamp)

    def offset_of_max_timestamp(self) -> lookup.TimestampOffset | None:
        self.check_online()
        return lookup.offset_of_max_timestamp(self)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) where it is unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def assign_epoch_start(self, leader_epoch: int, offset: int | None = None) -> None:
        """A leader begins its epoch at the end of its log."""
        self.check_online()
        self.epochs.assign(leader_epoch, self.log_end_offset if offset is None else offset)

    # Cutting

    def truncate_to(self, offset: int) -> bool:
        """Removes every record at or after the offset; False where there is none."""
        return retention.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        retention.truncate_fully_and_start_at(self, offset)

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start offset forward and drops segments that lie before it; returns the new start."""
        return retention.delete_records_before(self, offset, self.now_ms)

    def delete_old_segments(self, now_ms: int, stable_offset: int) -> int:
        """Applies retention.ms, retention.bytes and the log start offset; returns how many segments went."""
        return retention.delete_old_segments(self, now_ms, stable_offset)

    def remove_deleted_files(self, now_ms: int) -> int:
        """Removes .deleted files whose delay is over; returns how many still wait."""
        return retention.remove_deleted_files(self, now_ms)

    def expire_producers(self, now_ms: int, monotonic_ms: int) -> int:
        return self.producers.expire(now_ms, monotonic_ms, self.producer_id_expiration_ms)

    # Flushing

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms makes a flush due."""
        self.now_ms = now_ms
        unflushed = self.log_end_offset - self.flushed_offset
        return unflushed > 0 and (
            unflushed >= self.settings.flush_messages or now_ms - self.oldest_unflushed_ms >= self.settings.flush_ms
        )

    @property
    def has_appended(self) -> bool:
        """Whether this process has written to the active segment, as the map of recent appends tells."""
        return self.append_ends.get(self.log_end_offset) is not None

    @property
    def has_unflushed_segments(self) -> bool:
        """A segment has rolled and is not synced yet: a background flush is due, though no request waits for it."""
        return self.flushed_offset < self.bases[-1]

    @property
    def awaits_deletion(self) -> bool:
        """All records are deleted; the last file that held some goes when names are synced (``begin_naming``)."""
        return self.log_start_offset == self.bases[-1] > self.bases[0]

    def begin_flush(self) -> FlushTask:
        """What must be synced for everything appended so far. Syncs nothing itself.

        DiskError, for want of space mostly, says that nothing has been promised and nothing lost: a later flush may
        succeed. Only where a file is gone is the log, too.
        """
        return self._unless_gone(lambda: flush_plan.begin(self))

    def begin_naming(self) -> FlushTask:
        """The sync of file names only: no data is written or synced."""
        return self._unless_gone(lambda: flush_plan.begin_naming(self))

    def name_epochs(self, task: FlushTask) -> None:
        """To be called between the syncs of the task's files and of its folders. Raises as ``begin_flush`` does."""
        self._unless_gone(lambda: flush_plan.name_epochs(self, task))

    def _unless_gone(self, step: Callable[[], T]) -> T:
        self.check_online()
        try:
            return step()
        except FileMissing as error:
            raise self.fail(f"a flush could not go on: {error}") from error

    def finish_flush(self, task: FlushTask, error: DiskError | None = None) -> None:
        """All of the task is synced; or something is not, which ends the log: a failed fsync is never retried."""
        if error is not None:
            raise self.fail(f"sync failed: {error}") from error
        if self.offline is not None:
            raise self.offline
        if task.truncations != self.truncations:
            return  # what was synced may have been cut and written anew since
        flush_plan.finish(self, task)
        if self.awaits_deletion:
            retention.delete_before_start(self, self.now_ms)

    def flush(self) -> None:
        """Syncs everything, here and now."""
        task = self.begin_flush()
        self.finish_flush(task, flush_plan.sync_here(self, task))

    # Ending

    def check_online(self) -> None:
        if self.offline is not None:
            raise self.offline

    def fail(self, reason: str) -> LogOffline:
        """Takes the log offline; returns what the caller raises."""
        if self.offline is None:
            self.offline = LogOffline(str(self.partition), reason)
            if self.on_failure is not None:
                self.on_failure(self, reason)
        return self.offline

    def close(self, *, clean: bool = True) -> None:
        """A clean close leaves a folder that opens without recovery; the caller writes the clean shutdown marker.

        An offline log is closed without a word: it will be recovered.
        """
        self.is_closed = True
        try:
            if clean and self.offline is None:
                flush_plan.store_all(self)
        except DiskError as error:
            raise self.fail(f"the close failed: {error}") from error
        finally:
            for segment in self.segments:
                segment.close()

    def renamed(self, directory: str) -> None:
        """The folder has been renamed (deletion, or a move between folders)."""
        self.offline = LogOffline(str(self.partition), f"moved to {directory}")
        self.directory = directory
