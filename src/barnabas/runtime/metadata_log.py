"""The metadata log with its snapshots, as the raft machine and its driver see it.

The log is ``__cluster_metadata-0`` in Kafka's format. Its beginning may be gone: the snapshot that ends where the log
starts has what was before, and the epoch of the last record of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from barnabas.core.metadata import records as framing
from barnabas.core.raft.events import AppendControl, SnapshotKey
from barnabas.core.raft.voters import FROM_BOOTSTRAP, Voter, VoterSet
from barnabas.model.ports import Bytes, Disk, DiskError, FileMissing
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.metadata_snapshot import CorruptSnapshot, Snapshot
from barnabas.storage.log import Log
from barnabas.storage.replay import checked_batches
from barnabas.wire import batch, codec
from barnabas.wire.records import ControlType, Record, decode_batch, read_control_type
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

READ_BYTES = 1 << 20
"""Committed records are read in pieces of this size."""
MAX_ATOMIC_BYTES = (8 << 20) - 4096
"""A decision up to this size is one batch; a larger one becomes a metadata transaction of several (KIP-868)."""

VoterRecords = tuple[tuple[int, VoterSet], ...]


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
        for _, voters in _voters_in(header, listed):
            self.voters = tuple(voters)
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


class CommittedRecords(Struct, frozen=True):
    """Whole batches and whole transactions. ``records`` is empty for control batches, which move the offset only."""

    records: Sequence[Message]
    next_offset: int
    raft_epoch: int
    timestamp_ms: int


class MetadataLog:
    """Implements ``core.raft.events.LogView``."""

    def __init__(self, disk: Disk, log: Log, directory: str) -> None:
        self.log = log
        self.directory = directory
        self.bytes_since_snapshot = 0
        self._disk = disk
        self._snapshots: dict[int, int] = {}
        """Epochs by end offset."""

    # What it is

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_start_epoch(self) -> int:
        at_start = [end for end in sorted(self._snapshots) if end >= self.log.log_start_offset]
        return self._snapshots[at_start[0]] if at_start and self.log.log_start_offset else 0

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def latest_epoch(self) -> int:
        if self.log.latest_epoch >= 0 and self.log.log_end_offset > self.log.log_start_offset:
            return self.log.latest_epoch
        return max(self.log_start_epoch, 0)

    def end_offset_for_epoch(self, raft_epoch: int) -> tuple[int, int]:
        if raft_epoch >= self.latest_epoch:
            return self.latest_epoch, self.log_end_offset
        known_epoch, end_offset = self.log.end_offset_for_epoch(raft_epoch)
        if end_offset < 0 or end_offset <= self.log_start_offset:
            return self.log_start_epoch, self.log_start_offset
        return known_epoch, end_offset

    @property
    def latest_snapshot(self) -> SnapshotKey | None:
        if not self._snapshots:
            return None
        end_offset = max(self._snapshots)
        return SnapshotKey(end_offset, self._snapshots[end_offset])

    def snapshot_path(self, key: SnapshotKey) -> str:
        return f"{self.directory}/{metadata_snapshot.file_name(key.end_offset, key.raft_epoch)}"

    def snapshot_bytes(self, key: SnapshotKey) -> int | None:
        try:
            file = self._disk.open(self.snapshot_path(key))
        except FileMissing:
            return None
        try:
            return file.size()
        finally:
            file.close()

    def read_snapshot_part(self, key: SnapshotKey, position: int, max_bytes: int) -> bytes:
        file = self._disk.open(self.snapshot_path(key))
        try:
            return file.read(max_bytes, position)
        finally:
            file.close()

    def list_snapshots(self) -> None:
        """Looks which snapshots there are, after one was stored or removed."""
        self._snapshots = dict(metadata_snapshot.list_snapshots(self._disk, self.directory))

    # Loading

    def load(self) -> tuple[Snapshot, Loaded, VoterRecords]:
        """The latest snapshot, it and the log after it together, and the voter sets of both."""
        self.list_snapshots()
        found, entries = Snapshot(0, 0), []
        latest = self.latest_snapshot
        if latest is not None:
            found = metadata_snapshot.read(self._disk, self.snapshot_path(latest), latest.end_offset, latest.raft_epoch)
            entries = [(latest.end_offset - 1 if latest.end_offset else FROM_BOOTSTRAP, found.voter_set)]
            self.begin_at(latest)
        if self.log.log_start_offset > found.end_offset:
            raise CorruptSnapshot(
                f"the metadata log in {self.directory} begins at offset {self.log.log_start_offset}, "
                "and the snapshot (.checkpoint) of what was before it is missing"
            )
        loaded = Loaded(found.end_offset, list(found.records), timestamp_ms=found.timestamp_ms)
        entries += self._load_log(loaded)
        entries = [entry for entry in entries if len(entry[1])]
        loaded.voters = tuple(entries[-1][1]) if entries else ()
        return found, loaded, tuple(entries)

    def begin_at(self, key: SnapshotKey) -> bool:
        """Makes the log begin at the snapshot where it does not contain it: it is shorter, or another history."""
        if self.log.log_end_offset >= key.end_offset and self.latest_epoch >= key.raft_epoch:
            return False
        self.log.truncate_fully_and_start_at(key.end_offset)
        return True

    def _load_log(self, loaded: Loaded) -> list[tuple[int, VoterSet]]:
        offset = max(loaded.next_offset, self.log.log_start_offset)
        entries: list[tuple[int, VoterSet]] = []
        try:
            for content, position, header in checked_batches(self.log, offset):
                self.bytes_since_snapshot += header.size
                listed = decode_batch(content, position)
                loaded.take_batch(header, listed)
                entries += _voters_in(header, listed)
        except metadata_snapshot.UNREADABLE as problem:
            raise CorruptSnapshot(
                f"the metadata log in {self.directory} is damaged at offset {loaded.next_offset}: {problem}"
            ) from problem
        loaded.next_offset = max(offset, self.log.log_end_offset)
        return entries

    # Appending

    def append_control(self, effect: AppendControl, *, timestamp_ms: int) -> VoterRecords:
        entries: list[tuple[ControlType, bytes]] = []
        if effect.leader_change is not None:
            entries.append((ControlType.LEADER_CHANGE, codec.encode_bytes(effect.leader_change, 0)))
        if effect.voters is not None:
            listed = metadata_snapshot.voter_entries(effect.voters)
            entries += listed if effect.with_kraft_version else listed[1:]
        base_offset = self.log.log_end_offset
        place = {"leader_epoch": effect.raft_epoch, "timestamp_ms": timestamp_ms}
        self._write(metadata_snapshot.control_batch(entries, base_offset=base_offset, **place))
        return ((self.log.log_end_offset - 1, effect.voters),) if effect.voters is not None else ()

    def append_records(self, records: Sequence[Message], *, raft_epoch: int, timestamp_ms: int) -> None:
        """All of the records or none: what a failed write leaves of a decision is cut off again."""
        before = self.log.log_end_offset
        framed = [framing.encode(record) for record in records]
        max_bytes = MAX_ATOMIC_BYTES
        if sum(len(each) + 16 for each in framed) > MAX_ATOMIC_BYTES:
            ends = (BeginTransactionRecord(name="large decision"), EndTransactionRecord())
            framed = [framing.encode(ends[0]), *framed, framing.encode(ends[1])]
            max_bytes = metadata_snapshot.MAX_BATCH_BYTES
        place = {"leader_epoch": raft_epoch, "timestamp_ms": timestamp_ms}
        try:
            for _, encoded in metadata_snapshot.data_batches(framed, base_offset=before, max_bytes=max_bytes, **place):
                self._write(encoded)
        except DiskError:
            self.log.truncate_to(before)
            raise

    def append_fetched(self, records: Bytes) -> VoterRecords:
        """Batches of the leader. Raises ApiError where they are damaged or do not follow, DiskError, LogOffline."""
        before = self.log.log_end_offset
        content = memoryview(bytearray(records))
        try:
            self.log.append_as_follower(content)
        except DiskError:
            self.log.truncate_to(before)
            raise
        found: list[tuple[int, VoterSet]] = []
        for position, header in batch.iterate(content):
            if before <= header.base_offset and header.next_offset <= self.log.log_end_offset:
                self.bytes_since_snapshot += header.size
                if header.is_control:
                    found += _voters_in(header, decode_batch(content, position))
        return tuple(found)

    def _write(self, encoded: bytes) -> None:
        self.log.append_as_follower(memoryview(bytearray(encoded)))
        self.bytes_since_snapshot += len(encoded)

    # Reading

    def committed(self, offset: int, end_offset: int) -> Iterator[CommittedRecords]:
        """What is in the log from ``offset`` on and before ``end_offset``, batch by batch.

        A transaction comes as a whole, and not before its end: until then the offset stays before it.
        """
        unit = Loaded()
        for content, position, header in self._batches(offset, end_offset):
            unit.take_batch(header, decode_batch(content, position))
            if unit.open_transaction is None:
                yield CommittedRecords(unit.records, header.next_offset, header.leader_epoch, unit.timestamp_ms)
                unit = Loaded()

    def has_open_transaction(self, offset: int) -> bool:
        unit = Loaded()
        for content, position, header in self._batches(offset, self.log.log_end_offset):
            unit.take_batch(header, decode_batch(content, position))
        return unit.open_transaction is not None

    def _batches(self, offset: int, end_offset: int) -> Iterator[tuple[bytes, int, batch.BatchHeader]]:
        while offset < end_offset:
            result = self.log.read(offset, READ_BYTES, max_offset=end_offset)
            if result.records is None:
                return
            content = result.records.read()
            for position, header in batch.iterate(content):
                if not batch.check_crc(content, position, header.size):
                    raise CorruptSnapshot(f"{self.log!r}: the batch at {header.base_offset} is damaged")
                if header.next_offset > offset:
                    yield content, position, header
            offset = result.next_offset


def _voters_in(header: batch.BatchHeader, listed: list[Record]) -> list[tuple[int, VoterSet]]:
    if not header.is_control:
        return []
    return [
        (record.offset, metadata_snapshot.read_voter_set(record.value or b""))
        for record in listed
        if read_control_type(record) is ControlType.KRAFT_VOTERS
    ]
