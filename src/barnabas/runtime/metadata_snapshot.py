"""Snapshots of the metadata log: ``<end offset>-<epoch>.checkpoint``, in Kafka's form (KIP-630, KIP-853).

A control batch (snapshot header, kraft.version, voters), the records of the image, a closing control batch. The
snapshot 0-0 is written when a folder is formatted and is the only place that holds the first voters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from barnabas.core.metadata import records as framing
from barnabas.core.raft.voters import KRAFT_VERSION, Voter, VoterNode, VoterSet
from barnabas.model.ids import Uuid
from barnabas.model.ports import Disk, DiskError
from barnabas.wire import batch, codec, records
from barnabas.wire.compression import DecompressionError
from barnabas.wire.records import ControlType, Record
from barnabas.wire.schema import Message
from barnabas.wire.stored import raft

MAX_BATCH_BYTES = 1 << 20
"""Records beyond this go into a further batch: each must fit a fetch of the metadata log."""

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

UNREADABLE = (
    batch.CorruptBatch,
    batch.InvalidRecord,
    batch.UnsupportedMagic,
    batch.UnsupportedCodec,
    DecompressionError,
    codec.DecodeError,
)
"""What decoding of a damaged file raises."""

Endpoints = Sequence[tuple[str, str, int]]
"""(listener, host, port) of the voter."""


class Snapshot(Struct):
    end_offset: int
    raft_epoch: int
    timestamp_ms: int = 0
    voter_set: VoterSet = VoterSet()
    records: list[Message] = field(default_factory=list)

    @property
    def voters(self) -> tuple[Voter, ...]:
        return tuple(self.voter_set)


class CorruptSnapshot(Exception):
    """A snapshot, or the log after it, that cannot be read: the folder has been damaged from outside."""


def file_name(end_offset: int, raft_epoch: int) -> str:
    return f"{end_offset:020d}-{raft_epoch:010d}.checkpoint"


def list_snapshots(disk: Disk, directory: str) -> list[tuple[int, int]]:
    """(end offset, epoch) of each snapshot in the folder, oldest first."""
    found = [match for name in disk.list(directory) if (match := _NAME.fullmatch(name))]
    return sorted((int(match[1]), int(match[2])) for match in found)


def control_batch(
    entries: Iterable[tuple[ControlType, bytes]], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    listed = [
        Record(base_offset + n, timestamp_ms, records.control_key(kind), value)
        for n, (kind, value) in enumerate(entries)
    ]
    return records.encode_batch(listed, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def data_batches(
    values: Iterable[bytes],
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    max_bytes: int = MAX_BATCH_BYTES,
) -> Iterable[tuple[int, bytes]]:
    """(next offset, batch) for framed records, split at ``max_bytes``."""
    builder = records.BatchBuilder(base_offset=base_offset)
    for value in values:
        if builder.count and builder.size + len(value) > max_bytes:
            yield builder.next_offset, builder.build(leader_epoch=leader_epoch)
            builder = records.BatchBuilder(base_offset=builder.next_offset)
        builder.append(timestamp_ms, None, value)
    if builder.count:
        yield builder.next_offset, builder.build(leader_epoch=leader_epoch)


def quorum_entries(voters: Sequence[Voter], endpoints: Endpoints) -> list[tuple[ControlType, bytes]]:
    """kraft.version and voters that all have the same endpoints, as control records."""
    listed = tuple((name, host, port) for name, host, port in endpoints)
    return voter_entries(VoterSet(tuple(VoterNode(voter, listed) for voter in voters)))


def voter_entries(voters: VoterSet) -> list[tuple[ControlType, bytes]]:
    """kraft.version and the voters, as control records."""
    version = raft.KRaftVersionRecord(kraft_version=KRAFT_VERSION)
    listed = raft.VotersRecord(
        voters=[
            raft.VotersVoter(
                voter_id=node.voter.node_id,
                voter_directory_id=Uuid(node.voter.directory_id),
                endpoints=[raft.Endpoint(name=name, host=host, port=port) for name, host, port in node.endpoints],
                kraft_version_feature=raft.KRaftVersionFeature(
                    min_supported_version=node.min_kraft_version, max_supported_version=node.max_kraft_version
                ),
            )
            for node in voters.nodes
        ]
    )
    return [
        (ControlType.KRAFT_VERSION, codec.encode_bytes(version, 0)),
        (ControlType.KRAFT_VOTERS, codec.encode_bytes(listed, 0)),
    ]


def write(
    disk: Disk,
    path: str,
    contents: Iterable[Message],
    *,
    raft_epoch: int,
    timestamp_ms: int,
    quorum: Iterable[tuple[ControlType, bytes]] = (),
) -> None:
    header = raft.SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    opening = [(ControlType.SNAPSHOT_HEADER, codec.encode_bytes(header, 0)), *quorum]
    place = {"leader_epoch": raft_epoch, "timestamp_ms": timestamp_ms}
    whole = bytearray(control_batch(opening, base_offset=0, **place))
    offset = len(opening)
    framed = (framing.encode(record) for record in contents)
    for next_offset, encoded in data_batches(framed, base_offset=offset, **place):
        offset = next_offset
        whole += encoded
    footer = [(ControlType.SNAPSHOT_FOOTER, codec.encode_bytes(raft.SnapshotFooterRecord(), 0))]
    whole += control_batch(footer, base_offset=offset, **place)
    disk.write_file(path, whole)


def read(disk: Disk, path: str, end_offset: int = 0, raft_epoch: int = 0) -> Snapshot:
    content = disk.read_file(path)
    snapshot = Snapshot(end_offset, raft_epoch)
    try:
        _take_in(snapshot, path, content)
    except UNREADABLE as problem:
        raise CorruptSnapshot(f"{path} is damaged: {problem}") from problem
    return snapshot


def _take_in(snapshot: Snapshot, path: str, content: bytes) -> None:
    complete = False
    end = 0
    for position, header in batch.iterate(content):
        if not batch.check_crc(content, position, header.size):
            raise CorruptSnapshot(f"{path}: checksum of the batch at {position} does not match")
        end = position + header.size
        for record in records.decode_batch(content, position):
            if not header.is_control:
                snapshot.records.append(framing.decode(record.value or b""))
                continue
            kind = records.read_control_type(record)
            complete = kind is ControlType.SNAPSHOT_FOOTER
            _read_control(snapshot, kind, record.value or b"")
    if not complete:
        raise CorruptSnapshot(f"{path}: ends before its footer")
    if end < len(content):
        raise CorruptSnapshot(f"{path} is damaged: {len(content) - end} bytes follow its footer")


def _read_control(snapshot: Snapshot, kind: ControlType | None, value: bytes) -> None:
    if kind is ControlType.SNAPSHOT_HEADER:
        snapshot.timestamp_ms = codec.decode(raft.SnapshotHeaderRecord, 0, value)[0].last_contained_log_timestamp
    elif kind is ControlType.KRAFT_VOTERS:
        snapshot.voter_set = read_voter_set(value)


def read_voter_set(value: bytes) -> VoterSet:
    listed, _ = codec.decode(raft.VotersRecord, 0, value)
    return VoterSet(
        tuple(
            VoterNode(
                Voter(each.voter_id, each.voter_directory_id),
                tuple((endpoint.name, endpoint.host, endpoint.port) for endpoint in each.endpoints),
                each.kraft_version_feature.min_supported_version,
                each.kraft_version_feature.max_supported_version,
            )
            for each in listed.voters
        )
    )


def remove_older(disk: Disk, directory: str, end_offset: int) -> None:
    """Snapshots before the one at ``end_offset``; a failure leaves a file too many, which is no harm."""
    for other_end, other_epoch in list_snapshots(disk, directory):
        if other_end < end_offset:
            try:
                disk.remove(f"{directory}/{file_name(other_end, other_epoch)}")
            except DiskError:
                return
