"""``<offset>.snapshot``: the producers as they stood at an offset, in Kafka's format.

int16 version 1, uint32 CRC32C of the rest, then the entries. Snapshots are taken when a segment rolls (under the new
segment's base offset) and at a clean close; recovery begins from the newest sound one and reads the log from there.
"""

from __future__ import annotations

from struct import Struct, error

from barnabas.model.ports import Disk, FileMissing
from barnabas.storage.producer_state import ProducerEntry, ProducerState, RememberedBatch, first_sequence_of
from barnabas.wire.checksum import crc32c

SUFFIX = ".snapshot"
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1

RETRY_MS = 15 * 60_000
"""How long after a start a producer may repeat what it had sent before: more than clients' delivery time-outs."""


class CorruptSnapshot(Exception):
    """A snapshot that cannot be trusted; an older one or the log itself takes its place."""


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SUFFIX}"


def encode_snapshot(state: ProducerState) -> bytes:
    rows = [_COUNT.pack(len(state.producers))]
    for entry in state.producers.values():
        last = entry.batches[-1] if entry.batches else None
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence if last else -1,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                entry.last_heard_ms,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    body = b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    try:
        version, checksum = _HEAD.unpack_from(content)
        if version != _VERSION or crc32c(content[_HEAD.size :]) != checksum:
            raise CorruptSnapshot("version or checksum do not fit")
        (count,) = _COUNT.unpack_from(content, _HEAD.size)
        body = content[_HEAD.size + _COUNT.size :]
        if len(body) != count * _ENTRY.size:
            raise CorruptSnapshot(f"{count} entries in {len(body)} bytes")
        return [_entry(*row) for row in _ENTRY.iter_unpack(body)]
    except error as cause:
        raise CorruptSnapshot(str(cause)) from cause


def _entry(
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id, producer_epoch)
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = entry.last_heard_ms = timestamp
    entry.transaction_first_offset = max(transaction_first_offset, -1)
    if last_offset >= 0:
        first_sequence = first_sequence_of(last_sequence, offset_delta)
        batch = RememberedBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp)
        entry.batches.append(batch)
    return entry


class Snapshots:
    """The snapshot files of one partition."""

    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: str, names: list[str]) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets = sorted(int(name[:20]) for name in names if name.endswith(SUFFIX) and name[:20].isdigit())

    def take(self, state: ProducerState) -> None:
        """At the state's end offset, unless there is one already. Not synced: a lost one is made up for by the log."""
        offset = state.end_offset
        if self.offsets and self.offsets[-1] >= offset:
            return
        self._disk.write_file(snapshot_path(self.directory, offset), encode_snapshot(state), sync=False)
        self.offsets.append(offset)

    def sync_latest(self) -> None:
        if self.offsets:
            self._disk.open(snapshot_path(self.directory, self.offsets[-1])).sync()

    def load_latest(
        self, state: ProducerState, *, start_offset: int, end_offset: int, now_ms: int, expiration_ms: int
    ) -> None:
        """Fills the state from the newest sound snapshot in (start, end]; empty at the start offset without one.

        None expires by the time that passed while the log was closed (ADR 17): only the wall clock knows it, and a
        producer whose batch was in flight at the stop may still repeat it. Each has RETRY_MS from now.
        """
        for offset in reversed([offset for offset in self.offsets if start_offset < offset <= end_offset]):
            try:
                entries = decode_snapshot(self._disk.read_file(snapshot_path(self.directory, offset)))
            except (CorruptSnapshot, FileMissing):
                self.remove(offset)
                continue
            state.clear(offset)
            least_ms = now_ms - max(0, expiration_ms - RETRY_MS)
            for entry in entries:
                entry.last_heard_ms = max(entry.last_heard_ms, least_ms)
                state.load(entry)
            return
        state.clear(start_offset)

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            self.offsets.remove(offset)
            self._disk.remove(snapshot_path(self.directory, offset))

    def remove_outside(self, start_offset: int, end_offset: int) -> None:
        """A snapshot at the start offset or before it says nothing that is still in the log."""
        for offset in [offset for offset in self.offsets if not start_offset < offset <= end_offset]:
            self.remove(offset)

    def remove_strays(self, segment_offsets: list[int]) -> None:
        """Keeps those of segments and the newest, which a clean close left at the end of the log."""
        kept = {*segment_offsets, *self.offsets[-1:]}
        for offset in [offset for offset in self.offsets if offset not in kept]:
            self.remove(offset)
