"""Drives the raft machine: stores votes, writes and syncs the metadata log, sends, replies, delivers what is committed.

Effects are performed in the order in which they arise. One that makes another event (records were appended, the vote is
stored) steps the machine again, and the new effects queue behind the old ones. The listener gets committed records in
order (``quorum_listener``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.core.metadata import snapshot
from barnabas.core.metadata.image import MetadataImage
from barnabas.core.raft import events, messages
from barnabas.core.raft.events import Effect, Event
from barnabas.core.raft.machine import Identity, QuorumSettings, RaftMachine, Role, UnsupportedQuorum, Voter, VoterSet
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Address, Clock, Disk, DiskError, Network, Random, Timer
from barnabas.runtime import metadata_snapshot, quorum_figures, quorum_state
from barnabas.runtime.flush import RETRY_MS, flush, sync_names
from barnabas.runtime.metadata_log import CommittedRecords, Loaded, MetadataLog, VoterRecords
from barnabas.runtime.metadata_snapshot import Snapshot
from barnabas.runtime.parked_fetches import Call, ParkedFetches
from barnabas.runtime.quorum_figures import ReplicaFigures
from barnabas.runtime.quorum_listener import Delivery, QuorumListener
from barnabas.runtime.quorum_state import QUORUM_STATE, LostVote, read_stored_epoch
from barnabas.runtime.shard import Journaled
from barnabas.runtime.snapshot_fetcher import SnapshotFetcher
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import AbortTransactionRecord

__all__ = [
    "QUORUM_STATE",
    "CommittedRecords",
    "Loaded",
    "LostVote",
    "QuorumListener",
    "RaftDriver",
    "Snapshot",
    "read_stored_epoch",
]

RESIGN_MS = 1000
"""A leader that stops waits this long for the voters to hear of it."""


class RaftDriver:
    """The journal of the metadata shard."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        random: Random,
        log: Log,
        directory: str,
        cluster_id: str,
        me: Voter,
        endpoints: Sequence[tuple[str, str, int]],
        listener: QuorumListener,
        report: Callable[..., None],
        on_failure: Callable[[str], None] = lambda _: None,
        can_vote: bool = True,
        bootstrap: Sequence[Address] = (),
        network: Network | None = None,
        settings: QuorumSettings | None = None,
    ) -> None:
        """Without a network it can only be the single voter."""
        self.log = log
        self._log = MetadataLog(disk, log, directory)
        identity = Identity(
            me=me,
            cluster_id=cluster_id,
            endpoints=tuple((name, host, port) for name, host, port in endpoints),
            can_vote=can_vote,
            bootstrap=tuple(bootstrap),
        )
        self.machine = RaftMachine(identity, self._log, settings or QuorumSettings(), random)
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._network = network
        self._listener = listener
        self._report = report
        self._can_vote = can_vote
        self._fetcher = SnapshotFetcher(disk, self._log)
        self._voters: VoterRecords = ()
        self._queue: deque[Effect] = deque()
        self._is_performing = False
        self._parked = ParkedFetches(clock, self._answer_again)
        self._delivery = Delivery(self._log, listener, on_failure)
        self._timer: Timer | None = None
        self._timer_ms: int | None = None
        self._syncing = False
        self._flush_problem: DiskError | None = None
        self._started: Callable[[DiskError | None], None] | None = None
        self._is_stopped = False

    # Starting and stopping

    def load(self) -> Loaded:
        """The state to replay, and the voters. The only voter's log is its own to its end; of others' logs only the
        snapshot is known to be committed, and the rest is delivered as the high watermark shows it to be."""
        found, loaded, self._voters = self._log.load()
        me = self.machine.me
        if loaded.voters != (me,):
            loaded = Loaded(found.end_offset, list(found.records), loaded.voters, found.timestamp_ms)
        return loaded

    def start(self, then: Callable[[DiskError | None], None] = lambda _: None) -> None:
        """Joins the quorum after ``load``.

        ``then`` is called at once; for the only voter when it leads, or when the disk did not take the vote or the
        first record: a start on a full disk says so instead of waiting. Raises LostVote, UnsupportedQuorum.
        """
        voters = self._voters[-1][1] if self._voters else VoterSet()
        is_only_voter = tuple(voters) == (self.machine.me,)
        if not is_only_voter and self._network is None:
            listed = [voter.node_id for voter in voters]
            if listed != [self.machine.me.node_id]:
                raise UnsupportedQuorum(f"the metadata log names the voters {listed}, and there is no network to them")
        vote = quorum_state.load_vote(
            self._disk,
            self._directory,
            is_new=not self.log.log_end_offset,
            others_vote=self._can_vote and not is_only_voter,
            report=self._report,
        )
        self._started = then
        self._step(events.Start(vote, self._voters, self.log.flushed_offset))
        if self.log.log_end_offset > self.log.flushed_offset:
            self._sync()
        if not is_only_voter:
            self._finish_start(None)

    def _finish_start(self, problem: DiskError | None) -> None:
        then, self._started = self._started, None
        if then is not None:
            then(problem)

    def stop(self, then: Callable[[], None]) -> None:
        """A leader resigns, and waits a little for the voters to hear of it: the next election takes milliseconds."""
        self._step(events.Resign())

        def finish() -> None:
            if not self._is_stopped:
                timer.cancel()
                self.close()
                then()

        def look() -> None:
            if not self.machine.is_resigning:
                finish()

        timer = self._clock.call_at(self._clock.monotonic_ms() + RESIGN_MS, finish)
        self._resigned = look
        look()

    _resigned: Callable[[], None] | None = None

    def close(self) -> None:
        """Ends at once, without a word to the others."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # What it is

    @property
    def leader_id(self) -> int:
        """-1 where none is known."""
        return self.machine.leader_id

    @property
    def raft_epoch(self) -> int:
        return self.machine.raft_epoch

    @property
    def leader_address(self) -> Address | None:
        return self.machine.leader_address

    @property
    def is_leader(self) -> bool:
        return self.machine.role is Role.LEADER

    @property
    def voters(self) -> list[ReplicaFigures]:
        """With figures where this node leads."""
        return quorum_figures.voters(self.machine, self._clock, self.log.log_end_offset)

    @property
    def observers(self) -> list[ReplicaFigures]:
        return quorum_figures.observers(self.machine, self._clock)

    # Snapshots

    @property
    def bytes_since_snapshot(self) -> int:
        return self._log.bytes_since_snapshot

    def snapshot_of(self, image: MetadataImage) -> Callable[[Disk, Callable[[], None]], None]:
        """Makes what writes the image, which is committed: it may run elsewhere, with a disk of its own.

        It calls its second argument between records, so that others come to run.
        """
        path = f"{self._directory}/{metadata_snapshot.file_name(image.next_offset, image.raft_epoch)}"
        quorum = metadata_snapshot.voter_entries(self.machine.history.before(image.next_offset))

        def write(disk: Disk, breathe: Callable[[], None]) -> None:
            def records() -> Iterator[Message]:
                for record in snapshot.records_of(image):
                    breathe()
                    yield record

            place = {"raft_epoch": image.raft_epoch, "timestamp_ms": image.timestamp_ms}
            metadata_snapshot.write(disk, path, records(), quorum=quorum, **place)

        return write

    def let_go_before(self, image: MetadataImage, covered_bytes: int) -> None:
        """The image is stored: the log before it, of which so many bytes were new, is not needed any more."""
        self._log.bytes_since_snapshot = max(0, self._log.bytes_since_snapshot - covered_bytes)
        self._log.list_snapshots()
        if image.next_offset > self.log.log_start_offset:
            self.log.delete_records_before(image.next_offset)
        if self.log.awaits_deletion:
            sync_names(self._disk, self.log, lambda problem: None)  # one that failed is made up for by the next
        metadata_snapshot.remove_older(self._disk, self._directory, image.next_offset)
        self._log.list_snapshots()
        self.machine.history.discard_before(image.next_offset)

    # The journal

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.machine.high_watermark

    def append(self, appended: Sequence[Message]) -> Journaled:
        """All of the records or none. Raises ApiError(NOT_CONTROLLER) where this node does not lead."""
        if not self.machine.is_leading:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        raft_epoch, timestamp_ms = self.machine.raft_epoch, self._clock.now_ms()
        self._log.append_records(appended, raft_epoch=raft_epoch, timestamp_ms=timestamp_ms)
        end_offset = self.log.log_end_offset
        self._sync()
        self._wake()
        return Journaled(end_offset, raft_epoch, timestamp_ms)

    def abort_transaction(self) -> None:
        """A former leader died within a metadata transaction: what it had written of it never counts."""
        self.append([AbortTransactionRecord(reason="the controller that began it is gone")])

    # Requests of other nodes

    def receive(self, request: Message, reply: Callable[[Any], None]) -> Call:
        """``reply`` gets the response, now or later; the returned call can be cancelled."""
        call = Call(reply)
        if self._is_stopped:
            call.reply(messages.top_error(request, ErrorCode.BROKER_NOT_AVAILABLE))
        else:
            self._step(events.Received(call, request))
        return call

    def _answer_again(self, call: Call, request: Message) -> None:
        self._step(events.Received(call, request, has_waited=True))

    def _wake(self) -> None:
        is_leader = self.machine.role is Role.LEADER
        self._parked.wake(self.log.log_end_offset, self.machine.high_watermark, all_of_them=not is_leader)

    # Syncing

    def _sync(self) -> None:
        """One sync at a time; what is appended meanwhile is covered by the next."""
        if self._syncing:
            return
        self._syncing = True
        flush(self._disk, self.log, self._synced)

    def _synced(self, problem: DiskError | LogOffline | None) -> None:
        if isinstance(problem, LogOffline):
            return  # the log has told its folder, which ends the node
        self._syncing = False
        self._flush_problem = problem
        if problem is not None:  # the records are in the log and cannot be taken back: waiting requests keep waiting
            self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, self._sync)
            return
        self._step(events.LogSynced(self.log.flushed_offset))
        if self.log.log_end_offset > self.log.flushed_offset:
            self._sync()

    # Stepping

    def _step(self, event: Event) -> None:
        if self._is_stopped:
            return
        self._queue.extend(self.machine.step(event, self._clock.monotonic_ms()))
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._queue:
                self._perform(self._queue.popleft())
        finally:
            self._is_performing = False
        self._wake()
        self._set_timer()
        if self._resigned is not None:
            self._resigned()

    def _set_timer(self) -> None:
        deadline_ms = self.machine.deadline_ms
        if deadline_ms == self._timer_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, deadline_ms
        if deadline_ms is not None:
            self._timer = self._clock.call_at(deadline_ms, self._fire)

    def _fire(self) -> None:
        self._timer = self._timer_ms = None
        self._step(events.TimerFired())

    def _perform(self, effect: Effect) -> None:
        match effect:
            case events.Send():
                self._send(effect)
            case events.Reply():
                _call(effect.token).reply(effect.response)
            case events.ReplyRecords():
                self._reply_records(effect)
            case events.Park():
                self._parked.add(_call(effect.token), effect)
            case events.AppendRecords():
                self._append_fetched(effect)
            case events.HighWatermark():
                self._delivery.advance(self.machine.high_watermark, self.machine.raft_epoch)
            case events.PersistVote():
                self._persist(effect)
            case events.AppendControl():
                self._append_control(effect)
            case events.Truncate():
                self._truncate(effect)
            case events.LeaderKnown():
                self._listener.on_leader(effect.leader_id, effect.raft_epoch)
            case events.LeadershipBegins():
                pass  # ``Delivery.advance`` waits for the abort of an open transaction, too
            case events.LeadershipEnds():
                self._delivery.leadership_ended(self.machine.high_watermark)
            case events.ReplySnapshot():
                self._reply_snapshot(effect)
            case events.OpenSnapshot() | events.WriteSnapshot():
                self._fetch_snapshot(effect)
            case events.InstallSnapshot():
                self._fetcher.install(effect.key, lambda outcome: self._installed(effect.key, outcome))

    # Effects: messages

    def _send(self, effect: events.Send) -> None:
        def answered(response: Any) -> None:
            self._step(events.Responded(effect.node_id, effect.request, response))

        if self._network is not None:
            self._network.send(effect.address, effect.lane, effect.request, effect.timeout_ms, answered)

    def _reply_records(self, effect: events.ReplyRecords) -> None:
        """The log may have changed since the machine judged the fetch: one who leads no more has nothing to say."""
        request, wanted = effect.request, effect.request.topics[0].partitions[0]
        data = effect.response.responses[0].partitions[0]
        data.log_start_offset = self.log.log_start_offset
        is_current = self.machine.role is Role.LEADER and self.machine.raft_epoch == effect.raft_epoch
        if not is_current or not self.log.log_start_offset <= wanted.fetch_offset <= self.log.log_end_offset:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif wanted.fetch_offset < self.log.log_end_offset:
            try:
                max_bytes = min(request.max_bytes, wanted.partition_max_bytes)
                data.records = self.log.read(wanted.fetch_offset, max_bytes).records or b""
            except (ApiError, DiskError, LogOffline):
                data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        _call(effect.token).reply(effect.response)

    def _reply_snapshot(self, effect: events.ReplySnapshot) -> None:
        part = effect.response.topics[0].partitions[0]
        try:
            part.unaligned_records = self._log.read_snapshot_part(effect.key, effect.position, effect.max_bytes)
        except DiskError:
            part.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        _call(effect.token).reply(effect.response)

    # Effects: the vote and the log

    def _persist(self, effect: events.PersistVote) -> None:
        def stored(problem: DiskError | None) -> None:
            if problem is None:
                self._step(events.VotePersisted())
            elif self._started is not None:
                self._finish_start(problem)
            elif not self._is_stopped:
                self._report("the vote could not be stored", reason=str(problem))
                self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, lambda: self._persist(effect))

        quorum_state.store_vote(self._disk, self._directory, effect.vote, stored)

    def _append_control(self, effect: events.AppendControl) -> None:
        if self.machine.role is not Role.LEADER or self.machine.raft_epoch != effect.raft_epoch:
            return  # it led only until its vote was stored
        timestamp_ms = self._clock.now_ms()
        is_first = effect.leader_change is not None
        try:
            voters = self._log.append_control(effect, timestamp_ms=timestamp_ms)
            if is_first and self._log.has_open_transaction(self._listener.committed_offset):
                abort = AbortTransactionRecord(reason="the controller that began it is gone")
                self._log.append_records([abort], raft_epoch=effect.raft_epoch, timestamp_ms=timestamp_ms)
        except DiskError as problem:
            self._append_failed(problem)
            return
        if is_first:
            self._delivery.leadership_began(self.log.log_end_offset)
        self._step(events.LogAppended(voters))
        self._sync()
        if is_first:
            self._finish_start(self._flush_problem)

    def _append_failed(self, problem: Exception) -> None:
        if self._started is not None and isinstance(problem, DiskError):
            self._finish_start(problem)
            return
        self._report("the metadata log could not be appended to", reason=str(problem))
        self._step(events.AppendFailed())

    def _append_fetched(self, effect: events.AppendRecords) -> None:
        try:
            voters = self._log.append_fetched(effect.records)
        except (ApiError, DiskError) as problem:
            self._append_failed(problem)
            return
        except LogOffline:
            return  # the log has told its folder, which ends the node
        self._step(events.LogAppended(voters))
        self._sync()

    def _truncate(self, effect: events.Truncate) -> None:
        try:
            self.log.truncate_to(effect.offset)
        except LogOffline:
            return  # the log has told its folder, which ends the node
        self._step(events.LogTruncated())
        self._sync()

    # Effects: snapshots of the leader

    def _fetch_snapshot(self, effect: events.OpenSnapshot | events.WriteSnapshot) -> None:
        event: Event
        try:
            if isinstance(effect, events.OpenSnapshot):
                event = events.SnapshotOpened(effect.key, self._fetcher.open(effect.key))
            else:
                position = self._fetcher.write(effect.key, effect.position, effect.content)
                event = events.SnapshotWritten(effect.key, position)
        except DiskError as problem:
            self._report("a metadata snapshot could not be fetched", reason=str(problem))
            event = events.SnapshotFailed(effect.key)
        self._step(event)

    def _installed(self, key: events.SnapshotKey, outcome: Snapshot | Exception) -> None:
        if self._is_stopped:
            return
        if isinstance(outcome, Exception):
            self._report("a fetched metadata snapshot could not be installed", reason=str(outcome))
            self._step(events.SnapshotFailed(key))
            return
        self._log.list_snapshots()
        try:
            has_begun = self._log.begin_at(key)
        except LogOffline:
            return  # the log has told its folder, which ends the node; the next start begins from the snapshot
        if not has_begun:
            self._step(events.SnapshotFailed(key))  # the log has caught up meanwhile
            return
        self._log.bytes_since_snapshot = 0
        metadata_snapshot.remove_older(self._disk, self._directory, key.end_offset)
        self._log.list_snapshots()
        if key.end_offset > self._listener.committed_offset:
            self._listener.on_snapshot(outcome)
        self._step(events.SnapshotInstalled(key, outcome.voter_set))
        if self.log.log_end_offset > self.log.flushed_offset:
            self._sync()


def _call(token: object) -> Call:
    return token  # type: ignore[return-value]  # tokens are opaque to the machine; ours are calls
