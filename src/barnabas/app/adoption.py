"""Taking over the folder of a single-node Kafka: what is there, and what stands in the way.

The formats are the same, so nothing is converted. What must be looked at is what this build cannot honour: nobody's
secured data is served in the open, and no transaction is left hanging. Looking changes nothing in the folder; with
force a marker file is written that names what was waived, without which ``serve`` refuses.
"""

from __future__ import annotations

import json

from msgspec import Struct, field

from barnabas.app.errors import StartError
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.core.raft.machine import Voter
from barnabas.model.ids import METADATA_TOPIC, OFFSETS_TOPIC, TopicPartition
from barnabas.model.ports import Disk, DiskError, FileMissing
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.raft_driver import Loaded
from barnabas.storage import checkpoints
from barnabas.storage.log_directory import parse_directory_name
from barnabas.storage.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from barnabas.storage.producer_snapshot import CorruptSnapshot, decode_snapshot
from barnabas.wire import batch
from barnabas.wire.records import decode_batch
from barnabas.wire.stored import metadata_security as security

MARKER = "barnabas-adopted.json"
KNOWN_METADATA_VERSION = 30


class Findings(Struct):
    """What a folder holds."""

    cluster_id: str = ""
    node_id: int = -1
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
    """Reads; writes nothing."""
    findings = Findings()
    try:
        properties = checkpoints.read_meta_properties(disk, root)
    except checkpoints.MalformedCheckpoint as problem:
        findings.faults.append(str(problem))
        return findings
    if properties is None:
        findings.faults.append(f"{root} has no meta.properties: it is not the data folder of a Kafka broker")
        return findings
    findings.cluster_id = properties.get("cluster.id", "")
    findings.node_id = int(properties.get("node.id", "-1"))
    findings.was_clean = checkpoints.read_clean_shutdown(disk, root) is not None
    if not findings.was_clean:
        findings.obstacles.append(
            "it was not stopped cleanly: the end of each log will be checked, and torn ends cut off"
        )
    _load_metadata(disk, f"{root}/{METADATA_TOPIC}-0", findings)
    _list_partitions(disk, root, findings)
    findings.faults += _faults(findings)
    findings.obstacles += unhonoured(findings.image)
    return findings


def _load_metadata(disk: Disk, directory: str, findings: Findings) -> None:
    try:
        snapshots = metadata_snapshot.list_snapshots(disk, directory)
        loaded = Loaded()
        if snapshots:
            end_offset, raft_epoch = snapshots[-1]
            path = f"{directory}/{metadata_snapshot.file_name(end_offset, raft_epoch)}"
            found = metadata_snapshot.read(disk, path, end_offset, raft_epoch)
            loaded = Loaded(end_offset, found.records, found.voters, found.timestamp_ms)
        _read_log(disk, directory, loaded)
    except FileMissing:
        findings.faults.append("it has no metadata log: it belongs to a broker whose controller is another process")
        return
    findings.voters = loaded.voters
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in loaded.records:
        delta.replay(record)
    findings.image = delta.image(next_offset=loaded.next_offset, raft_epoch=0, timestamp_ms=loaded.timestamp_ms)


def _read_log(disk: Disk, directory: str, loaded: Loaded) -> None:
    for name in disk.list(directory):
        if not name.endswith(".log"):
            continue
        content = disk.read_file(f"{directory}/{name}")
        for position, header in batch.iterate(content):
            if header.last_offset >= loaded.next_offset and batch.check_crc(content, position, header.size):
                loaded.take_batch(header, decode_batch(content, position))


def _list_partitions(disk: Disk, root: str, findings: Findings) -> None:
    for name in disk.list(root):
        partition = parse_directory_name(name)
        if partition is None or partition.topic == METADATA_TOPIC:
            continue
        directory = f"{root}/{name}"
        files = disk.list(directory)
        size = sum(disk.open(f"{directory}/{file}").size() for file in files if file.endswith(".log"))
        findings.partitions.append((partition, size))
        if _has_open_transaction(disk, directory, files):
            findings.obstacles.append(f"{partition} has an open transaction, which would never end here")


def _has_open_transaction(disk: Disk, directory: str, files: list[str]) -> bool:
    snapshots = sorted(file for file in files if file.endswith(SNAPSHOT_SUFFIX))
    if not snapshots:
        return False
    try:
        entries = decode_snapshot(disk.read_file(f"{directory}/{snapshots[-1]}"))
    except (CorruptSnapshot, DiskError):
        return False
    return any(entry.transaction_first_offset >= 0 for entry in entries)


def _faults(findings: Findings) -> list[str]:
    image, node_id = findings.image, findings.node_id
    faults = []
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
            f"Look at it with: barnabas adopt {root} --dry-run."
        )


def groups_in(findings: Findings) -> int:
    """Partitions of the offsets topic that hold anything."""
    return sum(1 for partition, size in findings.partitions if partition.topic == OFFSETS_TOPIC and size)
