"""Drives the raft machine over the metadata log: persists votes, appends records, reports flushes to the machine.

The log is ``__cluster_metadata-0`` in Kafka's format. An append counts once it is synced: the driver steps the machine
with ``Flushed``, the resulting effect advances the high watermark, and the shard releases its replies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from barnabas.core.metadata import records as framing
from barnabas.core.metadata import snapshot
from barnabas.core.metadata.image import MetadataImage
from barnabas.core.raft.machine import Effects, Event, Flushed, RaftMachine, Start, Vote, VotePersisted, Voter
from barnabas.model.ids import uuid_text
from barnabas.model.ports import Clock, Disk, DiskError, FileMissing
from barnabas.model.settings import INT_MAX
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.flush import RETRY_MS, flush, sync_names
from barnabas.runtime.shard import Journaled
from barnabas.storage.durable_files import replace_files
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.replay import checked_batches
from barnabas.wire import batch, codec
from barnabas.wire.records import ControlType, Record, decode_batch, read_control_type
from barnabas.wire.schema import Message
from barnabas.wire.stored import raft
from barnabas.wire.stored.metadata_control import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

QUORUM_STATE = "quorum-state"


class LostVote(Exception):
    """The file with the vote is lost, and the quorum has other voters."""


class Loaded(Struct):
    next_offset: int = 0
    records: list[Message] = field(default_factory=list)
    voters: tuple[Voter, ...] = ()
    timestamp_ms: int = 0
    open_transaction: list[Message] | None = None
    """Records of a metadata transaction (KIP-868) whose end has not come: they do not count until it does."""

    def take_batch(self, header: batch.BatchHeader, listed: list[Record]) -> None:
        for record in listed:
            if not header.is_control:
                self.take(framing.decode(record.value or b""))
            elif read_control_type(record) is ControlType.KRAFT_VOTERS:
                self.voters = metadata_snapshot.read_voters(record.value or b"")
        self.timestamp_ms = header.max_timestamp
        self.next_offset = header.next_offset

    def take(self, record: Message) -> None:
        if isinstance(record, BeginTransactionRecord):
            self.open_transaction = []
        elif isinstance(record, EndTransactionRecord):
            self.records += self.open_transaction or []
            self.open_transaction = None
        elif isinstance(record, AbortTransactionRecord):
            self.open_transaction = None
        elif self.open_transaction is not None:
            self.open_transaction.append(record)
        else:
            self.records.append(record)


def read_stored_epoch(disk: Disk, directory: str) -> int:
    """The epoch of the last vote. Raises FileMissing, and ValueError where it cannot be made out."""
    content = disk.read_file(f"{directory}/{QUORUM_STATE}")
    try:
        stored_epoch = json.loads(content)["leaderEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"{type(problem).__name__}: {problem}") from None
    if not isinstance(stored_epoch, int) or not 0 <= stored_epoch < INT_MAX:
        raise ValueError(f"the leader epoch cannot be {stored_epoch}")
    return stored_epoch


class RaftDriver:
    """The journal of the metadata shard."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        log: Log,
        directory: str,
        me: Voter,
        endpoints: Sequence[tuple[str, str, int]],
        on_high_watermark: Callable[[], None],
        report: Callable[..., None],
    ) -> None:
        self.log = log
        self.machine = RaftMachine(me)
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._endpoints = endpoints
        self._on_high_watermark = on_high_watermark
        self._report = report
        self._syncing = False
        self._flush_problem: DiskError | None = None
        self.bytes_since_snapshot = 0

    # Starting

    def start(self, voters: tuple[Voter, ...], *, first: bool, then: Callable[[DiskError | None], None]) -> None:
        """Elects and begins to lead. ``first`` is the start that also puts the voters into the log.

        ``then`` is called when leadership has begun, or when the disk did not take the vote or the first record: a
        start on a full disk says so instead of waiting.
        """
        stored_epoch = max(self._stored_epoch(voters), self.log.latest_epoch or 0)
        effects = self._step(Start(stored_epoch, voters, self.log.log_end_offset))

        def persisted(problem: DiskError | None) -> None:
            if problem is None and not effects.lead:
                carry_out(self._step(VotePersisted(self.machine.raft_epoch)))
                return
            if problem is None:
                problem = self._lead(first=first)
            then(problem)

        def carry_out(next_effects: Effects) -> None:
            nonlocal effects
            effects = next_effects
            if effects.persist is not None:
                self._persist(effects.persist, persisted)

        carry_out(effects)

    def _stored_epoch(self, voters: tuple[Voter, ...]) -> int:
        """Of a quorum of one, 0 where it is lost or damaged: it has cast no vote that its log does not show.

        It may have, where it died between the vote and its first record; nobody else has heard of that one. Among
        several voters a vote that is forgotten could be cast twice.
        """
        try:
            return self._read_epoch()
        except ValueError as problem:
            if len(voters) > 1:
                raise LostVote(
                    f"{problem}, and the quorum has {len(voters)} voters: a node that forgets its vote could vote "
                    "twice. Remove it from the voters and add it again with a new directory.id"
                ) from problem
            self._report("the vote is lost: the epoch is taken from the metadata log", reason=str(problem))
            return 0

    def _read_epoch(self) -> int:
        """Raises ValueError where there must have been a vote and it cannot be read."""
        path = f"{self._directory}/{QUORUM_STATE}"
        try:
            return read_stored_epoch(self._disk, self._directory)
        except FileMissing:
            if self.log.log_end_offset:
                raise ValueError(f"{path} is missing") from None
            return 0
        except ValueError as problem:
            raise ValueError(f"{path} is damaged: {problem}") from None

    def _persist(self, vote: Vote, then: Callable[[DiskError | None], None]) -> None:
        """Off the loop; the vote takes effect with ``then``, not before."""
        content = {
            "leaderId": vote.leader_id,
            "leaderEpoch": vote.raft_epoch,
            "votedId": vote.voted_id,
            "votedDirectoryId": uuid_text(vote.voted_directory_id),
            "data_version": 1,
        }
        text = json.dumps(content, separators=(",", ":")).encode()
        replace_files(self._disk, self._directory, {QUORUM_STATE: text}, then)

    def _lead(self, *, first: bool) -> DiskError | None:
        voters = [raft.LeaderChangeMessageVoter(voter_id=voter.node_id) for voter in self.machine.voters]
        change = raft.LeaderChangeMessage(leader_id=self.machine.me.node_id, voters=voters, granting_voters=voters)
        entries = [(ControlType.LEADER_CHANGE, codec.encode_bytes(change, 0))]
        if first:
            entries += metadata_snapshot.quorum_entries(self.machine.voters, self._endpoints)
        try:
            self._write(metadata_snapshot.control_batch(entries, base_offset=self.log.log_end_offset, **self._place()))
        except DiskError as problem:
            return problem
        self._sync()
        return self._flush_problem

    def abort_transaction(self) -> None:
        """A former leader died within a metadata transaction: what it had written of it never counts."""
        self.append([AbortTransactionRecord(reason="the controller that began it is gone")])

    def load(self) -> Loaded:
        """The latest snapshot and what the log holds after it: the state to replay, and the voters."""
        snapshots = metadata_snapshot.list_snapshots(self._disk, self._directory)
        loaded = Loaded()
        if snapshots:
            end_offset, raft_epoch = snapshots[-1]
            path = f"{self._directory}/{metadata_snapshot.file_name(end_offset, raft_epoch)}"
            found = metadata_snapshot.read(self._disk, path, end_offset, raft_epoch)
            loaded = Loaded(end_offset, found.records, found.voters, found.timestamp_ms)
            if self.log.log_end_offset < end_offset:
                self.log.truncate_fully_and_start_at(end_offset)
        if self.log.log_start_offset > loaded.next_offset:
            raise metadata_snapshot.CorruptSnapshot(
                f"the metadata log in {self._directory} begins at offset {self.log.log_start_offset}, "
                "and the snapshot (.checkpoint) of what was before it is missing"
            )
        self._load_log(loaded)
        return loaded

    def _load_log(self, loaded: Loaded) -> None:
        offset = max(loaded.next_offset, self.log.log_start_offset)
        try:
            for content, position, header in checked_batches(self.log, offset):
                self.bytes_since_snapshot += header.size
                loaded.take_batch(header, decode_batch(content, position))
        except metadata_snapshot.UNREADABLE as problem:
            raise metadata_snapshot.CorruptSnapshot(
                f"the metadata log in {self._directory} is damaged at offset {loaded.next_offset}: {problem}"
            ) from problem
        loaded.next_offset = max(offset, self.log.log_end_offset)

    # Snapshots

    def snapshot_of(self, image: MetadataImage) -> Callable[[Disk, Callable[[], None]], None]:
        """Makes what writes the image, which is committed: it may run elsewhere, with a disk of its own.

        It calls its second argument between records, so that others come to run.
        """
        path = f"{self._directory}/{metadata_snapshot.file_name(image.next_offset, image.raft_epoch)}"
        quorum = metadata_snapshot.quorum_entries(self.machine.voters, self._endpoints)

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
        self.bytes_since_snapshot -= covered_bytes
        self.log.delete_records_before(image.next_offset)
        if self.log.awaits_deletion:
            sync_names(self._disk, self.log, lambda problem: None)  # one that failed is made up for by the next
        metadata_snapshot.remove_older(self._disk, self._directory, image.next_offset)

    # The journal

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.machine.high_watermark

    def append(self, appended: Sequence[Message]) -> Journaled:
        """All of the records or none: what a failed write leaves of a decision is cut off again."""
        before = self.log.log_end_offset
        place = self._place()
        framed = (framing.encode(record) for record in appended)
        try:
            for _, encoded in metadata_snapshot.data_batches(framed, base_offset=before, **place):
                self._write(encoded)
        except DiskError:
            self.log.truncate_to(before)
            raise
        self._sync()
        return Journaled(self.log.log_end_offset, self.machine.raft_epoch, place["timestamp_ms"])

    def _place(self) -> dict[str, int]:
        return {"leader_epoch": self.machine.raft_epoch, "timestamp_ms": self._clock.now_ms()}

    def _write(self, encoded: bytes) -> None:
        self.log.append_as_follower(memoryview(bytearray(encoded)))
        self.bytes_since_snapshot += len(encoded)

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
        self._step(Flushed(self.log.flushed_offset))
        if self.log.log_end_offset > self.log.flushed_offset:
            self._sync()

    def _step(self, event: Event) -> Effects:
        effects = self.machine.step(event)
        if effects.high_watermark is not None:
            self._on_high_watermark()
        return effects
