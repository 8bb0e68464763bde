"""Adopts the folder of a single-node Kafka: checks whether this build can serve it.

The formats are the same, so nothing is converted. The checks find what this build does not support: secured data would
be served without authentication. They change nothing in the folder. With force, a marker file records which
objections were waived; without it ``serve`` refuses such a folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from msgspec import Struct, field

from barnabas.app.program import program
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.core.metadata.records import UnknownRecord
from barnabas.core.raft.machine import Voter
from barnabas.model.errors import InvariantBroken, StartError
from barnabas.model.ids import METADATA_TOPIC, TopicPartition, Uuid, uuid_text
from barnabas.model.ports import Disk, DiskError, FileMissing
from barnabas.node import format as formatting
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.metadata_snapshot import CorruptSnapshot as CorruptMetadata
from barnabas.runtime.raft_driver import QUORUM_STATE, Loaded, read_stored_epoch
from barnabas.storage import checkpoints
from barnabas.storage.log_directory import parse_directory_name
from barnabas.storage.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from barnabas.storage.producer_snapshot import CorruptSnapshot, decode_snapshot
from barnabas.wire import batch
from barnabas.wire.records import decode_batch
from barnabas.wire.stored import metadata_security as security

MARKER = "barnabas-adopted.json"
KNOWN_METADATA_VERSION = 30

_SEGMENT = re.compile(r"\d{20}\.log")
_PRODUCERS = re.compile(r"\d{20}\.snapshot")


class Findings(Struct):
    """What a folder holds."""

    is_readable: bool = False
    """Whether its identity and its metadata could be read."""
    cluster_id: str = ""
    node_id: int = -1
    directory_id: Uuid | None = None
    was_clean: bool = False
    image: MetadataImage = EMPTY_IMAGE
    voters: tuple[Voter, ...] = ()
    partitions: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """(partition, bytes) of each log."""
    obstacles: list[str] = field(default_factory=list)
    """What this build cannot honour, a sentence each; can be waived by force."""
    faults: list[str] = field(default_factory=list)
    """What makes the folder unusable here; cannot be waived."""

    @property
    def topics(self) -> list[str]:
        return sorted(self.image.topics)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.partitions)


def inspect(disk: Disk, root: str) -> Findings:
    """Reads; writes nothing. What cannot be read is a fault."""
    findings = Findings()
    try:
        _load_identity(disk, root, findings)
        _load_metadata(disk, f"{root}/{METADATA_TOPIC}-0", findings)
        findings.is_readable = True
        _look_at_checkpoints(disk, root, findings)
        _list_partitions(disk, root, findings)
        findings.faults += _faults(findings)
    except (formatting.WrongFolder, CorruptMetadata) as problem:
        findings.faults.append(str(problem).rstrip("."))
    except DiskError as problem:
        reason = getattr(problem.cause, "strerror", None) or str(problem.cause)
        findings.faults.append(f"{problem.path} cannot be read: {reason.lower()}")
    findings.obstacles += unhonoured(findings.image)
    return findings


def _load_identity(disk: Disk, root: str, findings: Findings) -> None:
    properties = formatting.read_identity(disk, root)
    if properties is None:
        raise formatting.WrongFolder(f"{root} has no meta.properties: it is not the data folder of a Kafka broker")
    node_id = formatting.node_id_of(disk, root)
    if node_id is None:
        raise formatting.WrongFolder(f"{root}/meta.properties is damaged: it has no node.id")
    findings.directory_id = formatting.check_identity(root, properties, node_id)
    findings.cluster_id, findings.node_id = properties["cluster.id"], node_id
    findings.was_clean = checkpoints.read_clean_shutdown(disk, root) is not None
    if not findings.was_clean:
        findings.obstacles.append(
            "it was not stopped cleanly: the end of each log will be checked, and torn ends cut off"
        )
    if not disk.exists(f"{root}/{METADATA_TOPIC}-0"):
        raise formatting.WrongFolder(
            "it has no metadata log: it belongs to a broker whose controller is another process"
        )
    formatting.check_unclaimed(disk, [root])
    formatting.check_undamaged(disk, root)


def _load_metadata(disk: Disk, directory: str, findings: Findings) -> None:
    loaded = Loaded()
    try:
        snapshots = metadata_snapshot.list_snapshots(disk, directory)
        if snapshots:
            end_offset, raft_epoch = snapshots[-1]
            path = f"{directory}/{metadata_snapshot.file_name(end_offset, raft_epoch)}"
            found = metadata_snapshot.read(disk, path, end_offset, raft_epoch)
            loaded = Loaded(end_offset, found.records, found.voters, found.timestamp_ms)
        log_end_offset = _read_log(disk, directory, loaded)
        _check_end(disk, directory, log_end_offset, findings)
        findings.voters = loaded.voters
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in loaded.records:
            delta.replay(record)
        findings.image = delta.image(next_offset=loaded.next_offset, raft_epoch=0, timestamp_ms=loaded.timestamp_ms)
    except (*metadata_snapshot.UNREADABLE, UnknownRecord, InvariantBroken) as problem:
        raise CorruptMetadata(f"the metadata in {directory} cannot be read: {problem}") from problem


def _read_log(disk: Disk, directory: str, loaded: Loaded) -> int:
    """Replays the log after the snapshot, up to a torn end; returns where the log ends."""
    log_end_offset = 0
    for name in disk.list(directory):
        if not _SEGMENT.fullmatch(name):
            continue
        log_end_offset = int(name[:20])
        if log_end_offset > loaded.next_offset:
            raise CorruptMetadata(
                f"the metadata log in {directory} goes on at offset {log_end_offset}, and what was before it, from "
                f"{loaded.next_offset} on, is missing"
            )
        content = disk.read_file(f"{directory}/{name}")
        for position, header in _sound_batches(content):
            if header.last_offset >= loaded.next_offset:
                loaded.take_batch(header, decode_batch(content, position))
            log_end_offset = header.next_offset
    return log_end_offset


def _sound_batches(content: bytes) -> Iterator[tuple[int, batch.BatchHeader]]:
    """Unsound bytes are a torn end: ``check_undamaged`` has excluded damage."""
    try:
        for position, header in batch.iterate(content):
            if not batch.check_crc(content, position, header.size):
                return
            yield position, header
    except (batch.CorruptBatch, batch.UnsupportedMagic):
        return


def _check_end(disk: Disk, directory: str, log_end_offset: int, findings: Findings) -> None:
    """A log that was closed cleanly has a snapshot of its producers at its end."""
    named = [int(name[:20]) for name in disk.list(directory) if _PRODUCERS.fullmatch(name)]
    if findings.was_clean and log_end_offset < max(named, default=0):
        raise CorruptMetadata(
            f"the metadata log in {directory} ends at offset {log_end_offset}, and ended at {max(named)} when it was "
            "closed: restore the folder from a backup"
        )


def _look_at_checkpoints(disk: Disk, root: str, findings: Findings) -> None:
    try:
        read_stored_epoch(disk, f"{root}/{METADATA_TOPIC}-0")
    except FileMissing:
        pass
    except ValueError:
        findings.obstacles.append(
            f"{root}/{METADATA_TOPIC}-0/{QUORUM_STATE} is damaged: the epoch will be taken from the log"
        )
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.HIGH_WATERMARKS):
        try:
            checkpoints.read_offsets(disk, f"{root}/{name}")
        except checkpoints.MalformedCheckpoint:
            findings.obstacles.append(f"{root}/{name} is damaged: the offsets in it will not be used")


def _list_partitions(disk: Disk, root: str, findings: Findings) -> None:
    for name in disk.list(root):
        partition = parse_directory_name(name)
        if partition is not None and partition.topic != METADATA_TOPIC:
            _look_into(disk, f"{root}/{name}", partition, findings)


def _look_into(disk: Disk, directory: str, partition: TopicPartition, findings: Findings) -> None:
    files = disk.list(directory)
    size = sum(disk.open(f"{directory}/{file}").size() for file in files if file.endswith(".log"))
    findings.partitions.append((partition, size))
    topic = findings.image.topics.get(partition.topic)
    try:
        topic_id = checkpoints.read_partition_metadata(disk, directory)
    except checkpoints.MalformedCheckpoint:
        topic_id = None
        findings.obstacles.append(f"{directory}/{checkpoints.PARTITION_METADATA} is damaged: it will be written anew")
    if topic is not None and topic_id is not None and topic_id != topic.topic_id:
        findings.faults.append(
            f"{directory}/{checkpoints.PARTITION_METADATA} names the topic id {uuid_text(topic_id)}, and the metadata "
            f"{uuid_text(topic.topic_id)}: the records of {partition} would not be served"
        )
    _check_producers(disk, directory, partition, files, findings)


def _check_producers(
    disk: Disk, directory: str, partition: TopicPartition, files: list[str], findings: Findings
) -> None:
    snapshots = sorted(file for file in files if file.endswith(SNAPSHOT_SUFFIX))
    try:
        if snapshots:
            decode_snapshot(disk.read_file(f"{directory}/{snapshots[-1]}"))
    except CorruptSnapshot:
        findings.obstacles.append(
            f"{directory}/{snapshots[-1]} is damaged: the producers of {partition} are looked for in its log"
        )


def _faults(findings: Findings) -> list[str]:
    image, node_id = findings.image, findings.node_id
    faults = []
    if [voter.directory_id for voter in findings.voters if voter.node_id == node_id] not in (
        [],
        [findings.directory_id],
    ):
        faults.append("the directory.id in its meta.properties is not the one that its metadata log names")
    others = [voter.node_id for voter in findings.voters if voter.node_id != node_id]
    if others:
        faults.append(f"its quorum has other voters: {', '.join(map(str, others))}")
    brokers = [str(node) for node in image.brokers if node != node_id]
    if brokers:
        faults.append(f"its cluster has other brokers: {', '.join(brokers)}")
    level = image.features.get("metadata.version", 0)
    if level > KNOWN_METADATA_VERSION:
        faults.append(f"its metadata.version is {level}; {KNOWN_METADATA_VERSION} is the newest that is known here")
    held = {partition for partition, _ in findings.partitions}
    missing = [
        f"{topic.name}-{number}"
        for topic in image.topics.values()
        for number in range(len(topic.partitions))
        if TopicPartition(topic.name, number) not in held
    ]
    if missing:
        faults.append(
            f"the logs of {len(missing)} partition(s) are not in this folder, the first is {missing[0]}: "
            "give every folder of log.dirs"
        )
    return faults


def unhonoured(image: MetadataImage) -> list[str]:
    """What the metadata asks for and this build does not do."""
    counts = {
        "access control entries, which are not enforced here": _net(
            image, security.AccessControlEntryRecord, security.RemoveAccessControlEntryRecord
        ),
        "SCRAM credentials, and nobody is asked to authenticate here": _net(
            image, security.UserScramCredentialRecord, security.RemoveUserScramCredentialRecord
        ),
        "delegation tokens, which mean nothing here": _net(
            image, security.DelegationTokenRecord, security.RemoveDelegationTokenRecord
        ),
        "client quotas, which are not enforced here": _net(image, security.ClientQuotaRecord, None),
    }
    found = [f"it holds {count} {what}" for what, count in counts.items() if count > 0]
    remote = sorted(
        name
        for (kind, name), values in image.configs.items()
        if kind == TOPIC_RESOURCE and values.get("remote.storage.enable") == "true"
    )
    if remote:
        found.append(f"{len(remote)} topic(s) keep segments in remote storage, which cannot be read here: {remote[0]}")
    return found


def _net(image: MetadataImage, added: type, removed: type | None) -> int:
    """Kept records are a history: what was taken away again does not count."""
    count = sum(isinstance(record, added) for record in image.kept)
    return count - (sum(isinstance(record, removed) for record in image.kept) if removed is not None else 0)


def adopt(disk: Disk, root: str, findings: Findings) -> None:
    """Remembers what was waived."""
    if findings.obstacles:
        content = json.dumps({"version": 1, "waived": findings.obstacles}, indent=2)
        disk.write_file(f"{root}/{MARKER}", content.encode())


def check_served(disk: Disk, root: str, image: MetadataImage) -> None:
    """At every start: what cannot be honoured must have been waived by someone."""
    obstacles = unhonoured(image)
    if obstacles and not disk.exists(f"{root}/{MARKER}"):
        raise StartError(
            f"The data folder {root} asks for what this version does not do: {'; '.join(obstacles)}. "
            f"Look at it with: {program()} adopt {root} --dry-run."
        )
