"""A local replica of a partition: its log, its role, and the requests that wait for it.

    lead   --> appends from producers; followers' fetches move the high watermark (``core.replication.leader``)
    follow --> appends what its fetcher brings (``runtime.replica_fetcher``); the leader tells the high watermark
    update --> the leader stays, the in-sync replicas change
    stand down --> leads no more until ``lead`` says so again (``runtime.leader_lease``)

Appends and reads happen at once. What has to wait (an acknowledgement for the high watermark, a fetch for bytes) is
called back when the high watermark advances. If flush.messages or flush.ms makes a flush due, this replica's share of
the high watermark, and with it acknowledgement and visibility, waits for the flush; appends that arrive meanwhile
share the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from barnabas.core.replication.leader import LeaderState, Proposal
from barnabas.core.txn.marker import EndMarker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_LEADER, TopicPartition, Uuid
from barnabas.model.ports import Clock, Disk, DiskError
from barnabas.model.settings import LONG_MAX
from barnabas.model.topic_settings import TopicSettings
from barnabas.runtime.flush import RETRY_MS, flush, sync_names
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Appended, Log
from barnabas.storage.log_read import ReadResult
from barnabas.storage.lookup import TimestampOffset
from barnabas.storage.producer_state import Origin, ProducerEntry
from barnabas.wire.batch import CorruptBatch
from barnabas.wire.records import encode_end_marker


@contextmanager
def _storage_errors() -> Iterator[None]:
    """The room's border: handlers know error codes, and none of the storage's exceptions."""
    try:
        yield
    except (DiskError, LogOffline) as problem:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
    except CorruptBatch as problem:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(problem)) from problem


class FetchWaiter(Protocol):
    def grown(self, partition: Partition, grown_bytes: int) -> None:
        """More of the partition can be seen than before."""

    def disturbed(self) -> None:
        """The partition changed in another way (leadership, deletion): answer now."""


MAX_LAG_MS = 10_000
"""replica.lag.time.max.ms where nothing else is said."""


def _no_proposals(partition: Partition) -> None:
    """For partitions without followers."""


class Partition:
    def __init__(
        self,
        *,
        log: Log,
        topic_id: Uuid,
        node_id: int,
        disk: Disk,
        clock: Clock,
        high_watermark: int = 0,
        max_lag_ms: int = MAX_LAG_MS,
        on_proposal: Callable[[Partition], None] = _no_proposals,
    ) -> None:
        """``high_watermark`` is that of the checkpoint; the log may have lost what lay below it, or begin after it.

        ``on_proposal`` is called when the leader wants other in-sync replicas: ``leader.proposal``.
        """
        self.name: TopicPartition = log.partition
        self.topic_id = topic_id
        self.log = log
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self.leader_id: int = NO_LEADER
        self.leader: LeaderState | None = None
        self._stood_down: LeaderState | None = None
        """What it knew of its followers when it stood down: a proposal may still be accepted by the controller."""
        self.leader_epoch = -1
        self.leader_epoch_start_offset = -1
        """Where the log ended when this broker became leader."""
        self.replicas: tuple[int, ...] = ()
        self.durable_end = 0
        """Below it this replica holds the log as durably as the topic's flush settings ask: what acks=1 waits for."""
        self.is_durable_at_once = False
        """Whether an append is durable in that sense when it returns: no flush is to be waited for."""
        self.commits_at_once = False
        """Whether it is also committed: there is no other in-sync replica."""
        self._node_id = node_id
        self._disk = disk
        self._clock = clock
        self._max_lag_ms = max_lag_ms
        self._on_proposal = on_proposal
        self._waiting_fetches: dict[FetchWaiter, None] = {}
        self._waiting_replicas: dict[FetchWaiter, None] = {}
        """Fetches of followers, which see the log to its end."""
        self._waiting_for_durable: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self._waiting_for_commit: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self._invisible: deque[tuple[int, int]] = deque()
        """(end offset, bytes) of appended batches that the high watermark has not passed."""
        self._flushing = False
        self._naming = False
        self._flush_timer_set = False
        self._learn_settings(log.settings)

    # Settings and leadership

    def update_settings(self, settings: TopicSettings) -> None:
        self.log.update_settings(settings)
        self._learn_settings(settings)

    @property
    def settings(self) -> TopicSettings:
        return self.log.settings

    def _learn_settings(self, settings: TopicSettings) -> None:
        self._flushes = settings.flush_messages != LONG_MAX or settings.flush_ms != LONG_MAX
        self.min_in_sync_replicas = settings.min_insync_replicas
        if self.leader is not None:
            self.leader.min_in_sync = settings.min_insync_replicas
        self._learn_commits()

    def _learn_commits(self) -> None:
        self.is_durable_at_once = self.leader is not None and not self._flushes
        self.commits_at_once = self.is_durable_at_once and len(self.replicas) == 1

    def lead(
        self, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], in_sync_replicas: tuple[int, ...]
    ) -> None:
        """Becomes leader, or stays it with other replicas or other in-sync ones.

        Where the topic's flush settings make acknowledgements wait for a sync, what recovery found has to be synced
        first: a producer's repetition of it must not be acknowledged before.
        """
        now_ms = self._clock.monotonic_ms()
        if self._stood_down is not None and leader_epoch == self.leader_epoch:
            self._lead_again(self._stood_down)
        self._stood_down = None
        if self.leader is not None and leader_epoch == self.leader_epoch:
            if replicas != self.replicas:
                self.replicas = replicas
                self.leader.assign(replicas, now_ms)
                self._learn_commits()
            self.update(partition_epoch, in_sync_replicas)
            return
        self.leader_id, self.leader_epoch = self._node_id, leader_epoch
        self.replicas = replicas
        self.log.assign_epoch_start(leader_epoch)
        self.leader_epoch_start_offset = self.log.log_end_offset
        self.leader = LeaderState(
            me=self._node_id,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=replicas,
            in_sync_replicas=in_sync_replicas,
            start_offset=self.leader_epoch_start_offset,
            high_watermark=self.high_watermark,
            max_lag_ms=self._max_lag_ms,
            min_in_sync=self.min_in_sync_replicas,
            now_ms=now_ms,
        )
        self._learn_commits()
        for waiter in list(self._waiting_fetches):
            waiter.disturbed()  # consumers of a follower may read more from a leader, or have to ask for its epoch
        if self._flushing:
            return  # its end moves the high watermark
        if self._flushes and self.log.unflushed_messages:
            self._advance(self.log.flushed_offset)
            self.flush()
        else:
            self._advance(self.log.log_end_offset)

    def stand_down(self) -> None:
        """Serves nobody, though the metadata names no other leader: it may be behind."""
        self._stood_down = self.leader
        self.leader_id = NO_LEADER
        self.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _lead_again(self, leader: LeaderState) -> None:
        self.leader, self.leader_id = leader, self._node_id
        self._learn_commits()
        self._advance(self.durable_end)
        if leader.proposal is not None:
            self._on_proposal(self)

    def update(self, partition_epoch: int, in_sync_replicas: tuple[int, ...]) -> None:
        """The in-sync replicas have changed and the leader has not."""
        leader = self.leader
        if leader is not None and leader.update(partition_epoch, in_sync_replicas, self._clock.monotonic_ms()):
            self._on_high_watermark(leader.high_watermark)

    def follow(self, leader: int, leader_epoch: int, replicas: tuple[int, ...] = ()) -> bool:
        """Another broker leads, or none does. Whether that is news: fetching has to begin anew.

        The high watermark stays where it is. Appends of the former leader's time that are not committed may be cut.
        """
        if leader_epoch < self.leader_epoch or (leader, leader_epoch) == (self.leader_id, self.leader_epoch):
            return False
        self.leader_id, self.leader_epoch, self.replicas = leader, leader_epoch, replicas
        self._stood_down = None
        self.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.durable_end = self.log.flushed_offset if self._flushes else self.log.log_end_offset
        if self._flushes and self.log.unflushed_messages:
            self.flush()
        return True

    def stop(self, reason: ErrorCode) -> None:
        """No longer served here: everyone who waits is answered."""
        self.leader = None
        self._learn_commits()
        self._answer_waiting_produces(reason)
        for waiter in [*self._waiting_fetches, *self._waiting_replicas]:
            waiter.disturbed()

    def _answer_waiting_produces(self, reason: ErrorCode) -> None:
        waiting = [*self._waiting_for_durable, *self._waiting_for_commit]
        self._waiting_for_durable.clear()
        self._waiting_for_commit.clear()
        for _, then in waiting:
            then(reason)

    def check_leader(self, current_leader_epoch: int = -1) -> LeaderState:
        """For a client that names the epoch it knows (KIP-320): it must be ours. Raises ApiError."""
        self._check_epoch(current_leader_epoch)
        leader = self.leader
        if leader is None:
            raise self._not_served()
        return leader

    def check_replica(self, current_leader_epoch: int) -> None:
        """As ``check_leader``, for consumers that read from followers too (KIP-392). Raises ApiError."""
        self._check_epoch(current_leader_epoch)
        if self.leader is None and (self.leader_id < 0 or self.log.offline is not None):
            raise self._not_served()

    def _check_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            stale = current_leader_epoch < self.leader_epoch
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def _not_served(self) -> ApiError:
        offline = self.log.offline is not None
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def in_sync_count(self) -> int:
        return len(self.leader.in_sync_replicas) if self.leader is not None else 0

    @property
    def has_enough_in_sync(self) -> bool:
        """For acks=all."""
        return self.leader is not None and self.leader.has_enough_in_sync

    # Appending

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        guard: object = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Raises ApiError; a log that went offline answers KAFKA_STORAGE_ERROR.

        ``guard`` is that of ``begin_verification``; ``transaction_version`` is for markers.
        """
        leader = self.leader
        if leader is None:
            raise self._not_served()
        try:
            appended = self.log.append_as_leader(
                batch,
                leader.leader_epoch,
                now_ms,
                origin=origin,
                guard=guard,
                transaction_version=transaction_version,
            )
        except (DiskError, LogOffline) as problem:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        if not appended.duplicate:
            self._invisible.append((appended.last_offset + 1, appended.size))
            if self._flushes:
                self._gate(now_ms)
            else:
                self._advance(self.log.log_end_offset)
                if self.log.has_unflushed_segments and not self._flushing:
                    self.flush()  # nobody waits for it; it bounds what a crash makes us check
            if self._waiting_replicas:
                for waiter in list(self._waiting_replicas):
                    waiter.grown(self, appended.size)
        return appended

    def append_end_marker(self, marker: EndMarker, now_ms: int) -> Appended:
        """Ends the transaction of a producer. Raises ApiError."""
        batch = encode_end_marker(
            commit=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=now_ms,
        )
        return self.append(
            memoryview(bytearray(batch)),
            now_ms,
            Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )

    def needs_verification(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a batch of that producer would begin a transaction here."""
        return not self.log.producers.has_open_transaction(producer_id, producer_epoch)

    def begin_verification(self, producer_id: int, producer_epoch: int) -> object | None:
        """The guard that the first batch of a transaction needs; None where the transaction is open already here."""
        return self.log.producers.begin_verification(producer_id, producer_epoch)

    def holds(self, producer_id: int, guard: object) -> bool:
        """Whether no marker has come since the guard was made."""
        return self.log.producers.holds(producer_id, guard)

    def end_verification(self, producer_id: int, guard: object) -> None:
        """The coordinator does not confirm the transaction."""
        self.log.producers.end_verification(producer_id, guard)

    def when_durable(self, last_offset: int, then: Callable[[ErrorCode], None]) -> None:
        """Calls ``then`` when this replica holds the record durably, whatever the others do."""
        if last_offset < self.durable_end:
            then(ErrorCode.NONE)
        else:
            self._waiting_for_durable.append((last_offset, then))

    def when_acknowledged(self, last_offset: int, then: Callable[[ErrorCode], None]) -> None:
        """As ``when_committed``, for acks=all: enough replicas must be in sync when the high watermark passes."""

        def committed(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and not self.has_enough_in_sync:
                code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            then(code)

        self.when_committed(last_offset, committed)

    def when_committed(self, last_offset: int, then: Callable[[ErrorCode], None]) -> None:
        """Calls ``then`` with the outcome: at once, or when the high watermark has passed ``last_offset``."""
        if last_offset < self.high_watermark:
            then(ErrorCode.NONE)
        else:
            self._waiting_for_commit.append((last_offset, then))

    def _advance(self, offset: int) -> None:
        """This replica holds the log durably up to ``offset``."""
        if offset > self.durable_end:
            self.durable_end = offset
            while self._waiting_for_durable and self._waiting_for_durable[0][0] < offset:
                self._waiting_for_durable.popleft()[1](ErrorCode.NONE)
        leader = self.leader
        if leader is not None and leader.advance(offset, self._clock.monotonic_ms() if leader.followers else 0):
            self._on_high_watermark(leader.high_watermark)

    def _on_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        while self._waiting_for_commit and self._waiting_for_commit[0][0] < self.high_watermark:
            self._waiting_for_commit.popleft()[1](ErrorCode.NONE)
        invisible, grown = self._invisible, 0
        while invisible and invisible[0][0] <= high_watermark:
            grown += invisible.popleft()[1]
        if self._waiting_fetches:
            for waiter in list(self._waiting_fetches):
                waiter.grown(self, grown)

    # Leading: followers

    def on_follower_fetch(self, node: int, broker_epoch: int, offset: int, *, eligible: bool) -> None:
        """A follower asks for what follows ``offset``: it holds all before. Raises ApiError.

        ``eligible`` says whether the metadata lets that incarnation of the broker be in sync.
        """
        leader = self.leader
        if leader is None or node not in leader.followers:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} has no replica of {self.name}")
        before = leader.proposal
        moved = leader.on_fetch(
            node,
            broker_epoch=broker_epoch,
            offset=offset,
            leader_end_offset=self.log.log_end_offset,
            eligible=eligible,
            now_ms=self._clock.monotonic_ms(),
        )
        if moved:
            self._on_high_watermark(leader.high_watermark)
        if leader.proposal is not before:
            self._on_proposal(self)

    def read_as_follower(self, offset: int, max_bytes: int, *, minimum_one: bool) -> ReadResult:
        """To the end of the log. Raises ApiError."""
        with _storage_errors():
            return self.log.read(offset, max_bytes, minimum_one=minimum_one)

    def check_followers(self) -> None:
        """Proposes to go on without followers that have not caught up for too long."""
        if self.leader is not None and self.leader.shrink(self._clock.monotonic_ms()):
            self._on_proposal(self)

    def refuse_proposal(self, proposal: Proposal) -> None:
        leader = self.leader
        if leader is not None and leader.on_refused(proposal, self._clock.monotonic_ms()):
            self._on_high_watermark(leader.high_watermark)

    # Following

    def replicate(self, batches: memoryview | bytes, leader_high_watermark: int, leader_start_offset: int) -> None:
        """Appends what the leader has sent, and learns how far it is committed. Raises ApiError."""
        with _storage_errors():
            if len(batches):
                before = self.log.log_end_offset
                now_ms = self.log.now_ms = self._clock.now_ms()
                end_offset = self.log.append_as_follower(memoryview(batches))
                if end_offset > before:
                    self._invisible.append((end_offset, len(batches)))
                    self._after_replication(now_ms)
            high_watermark = min(leader_high_watermark, self.log.log_end_offset)
            if high_watermark > self.high_watermark:
                self._on_high_watermark(high_watermark)
            if leader_start_offset > self.log.log_start_offset:
                self.log.delete_records_before(min(leader_start_offset, self.high_watermark))
                self._finish_deletion()

    def _after_replication(self, now_ms: int) -> None:
        if self._flushes:
            self._gate(now_ms)
            return
        self._advance(self.log.log_end_offset)
        if self.log.has_unflushed_segments and not self._flushing:
            self.flush()

    def truncate_to(self, offset: int) -> None:
        """The leader's log diverges from here on. Raises ApiError."""
        with _storage_errors():
            self.log.truncate_to(offset)
        self._after_truncation()

    def start_anew_at(self, offset: int) -> None:
        """The leader's log begins after the end of this one. Raises ApiError."""
        with _storage_errors():
            self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        self._after_truncation()

    def _after_truncation(self) -> None:
        end_offset = self.log.log_end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.durable_end = min(self.durable_end, end_offset)
        self._invisible.clear()
        for waiter in list(self._waiting_fetches):
            waiter.disturbed()

    # Flushing

    def _gate(self, now_ms: int) -> None:
        if self._flushing:
            return
        if self.log.flush_due(now_ms):
            self.flush()
            return
        self._advance(self.log.log_end_offset)
        if self.log.settings.flush_ms != LONG_MAX:
            self._set_flush_timer(self.log.settings.flush_ms)

    def _set_flush_timer(self, delay_ms: int) -> None:
        if not self._flush_timer_set:
            self._flush_timer_set = True
            self._clock.call_at(self._clock.monotonic_ms() + delay_ms, self._on_flush_timer)

    def _on_flush_timer(self) -> None:
        self._flush_timer_set = False
        if not self._flushing and self.log.offline is None and self.log.unflushed_messages:
            self.flush()

    def flush(self) -> None:
        """Syncs off the loop what is appended so far; the high watermark follows when it is done.

        Where there is no room for what a flush has to write, those who wait are told that their records are not
        durable. They are in the log, though: a later flush makes them so, and a producer's repetition is known as one.
        """
        if self._flushing or self.log.offline is not None:
            return
        self._flushing = True
        flush(self._disk, self.log, self._flushed)

    def _flushed(self, problem: DiskError | LogOffline | None) -> None:
        self._flushing = False
        if isinstance(problem, LogOffline):
            self.stop(ErrorCode.KAFKA_STORAGE_ERROR)
        elif problem is not None:
            self._answer_waiting_produces(ErrorCode.KAFKA_STORAGE_ERROR)
            self._set_flush_timer(RETRY_MS)
        elif self.log.flush_due(self._clock.now_ms()):
            self._advance(self.log.flushed_offset)
            self.flush()
        else:
            self._advance(self.log.log_end_offset)
            if self.log.has_unflushed_segments:
                self.flush()  # another segment has rolled meanwhile

    def switch_log(self, log: Log) -> None:
        """The same log in another data folder, flushed (``runtime.replica_moves``)."""
        self.log = log
        self._flushing = self._naming = False  # nobody hears of what was under way for the former one
        log.now_ms = self._clock.now_ms()
        self._advance(log.log_end_offset)

    # Reading

    def visible_end(self, *, committed_only: bool) -> int:
        """The first offset that a consumer may not see."""
        return self.log.last_stable_offset(self.high_watermark) if committed_only else self.high_watermark

    def read(self, offset: int, max_bytes: int, *, committed_only: bool, minimum_one: bool) -> ReadResult:
        """Nothing where the offset lies between the high watermark and the log's end. Raises ApiError."""
        end = self.visible_end(committed_only=committed_only)
        try:
            return self.log.read(offset, max_bytes, max_offset=end, minimum_one=minimum_one, aborted=committed_only)
        except (DiskError, LogOffline) as problem:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        except CorruptBatch as problem:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(problem)) from problem

    # Looking up; all raise ApiError alone

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        return self.log.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def data_folder(self) -> str:
        """The one of ``log.dirs`` that holds the log."""
        return self.log.directory.rpartition("/")[0]

    @property
    def allows_deletion(self) -> bool:
        """Whether cleanup.policy includes delete."""
        return self.log.settings.deletes

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which the record at the offset was written, -1 where it is not known."""
        return self.log.epochs.epoch_of(offset)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) where it is unknown."""
        return self.log.end_offset_for_epoch(leader_epoch)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after the timestamp."""
        with _storage_errors():
            return self.log.offset_for_timestamp(timestamp)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        with _storage_errors():
            return self.log.offset_of_max_timestamp()

    def producers(self) -> Iterable[ProducerEntry]:
        return self.log.producers.producers.values()

    # Deleting

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start offset forward, at most to the last stable offset; returns where the log starts then."""
        if not 0 <= offset <= self.last_stable_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is outside 0..{self.last_stable_offset}, the last stable offset",
            )
        with _storage_errors():
            start = self.log.delete_records_before(offset)
        self._finish_deletion()
        return start

    def _finish_deletion(self) -> None:
        """What must be synced before the last file goes is synced off the loop."""
        if self.log.awaits_deletion and not self._naming:
            self._naming = True
            sync_names(self._disk, self.log, self._named)

    def _named(self, problem: DiskError | LogOffline | None) -> None:
        self._naming = False
        if isinstance(problem, LogOffline):
            self.stop(ErrorCode.KAFKA_STORAGE_ERROR)

    def add_fetch(self, waiter: FetchWaiter, *, by_follower: bool = False) -> None:
        (self._waiting_replicas if by_follower else self._waiting_fetches)[waiter] = None

    def remove_fetch(self, waiter: FetchWaiter) -> None:
        self._waiting_fetches.pop(waiter, None)
        self._waiting_replicas.pop(waiter, None)

    # Upkeep

    def upkeep(self, now_ms: int) -> None:
        """Retention, expiry of producers, removal of deleted files, a flush of rolled segments."""
        log = self.log
        if log.offline is not None:
            return
        log.expire_producers(now_ms, self._clock.monotonic_ms())
        log.delete_old_segments(now_ms, self.last_stable_offset)
        self._finish_deletion()
        if log.has_unflushed_segments:
            self.flush()
        log.remove_deleted_files(now_ms)
