"""Formatting a data folder, as ``kafka-storage format --standalone`` does: ids, first voters, first features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.core.metadata.features import BOOTSTRAP_FEATURES
from barnabas.core.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.core.raft.voters import Voter, VoterNode, VoterSet
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition, Uuid, uuid_from_text, uuid_text
from barnabas.model.ports import Disk, FileMissing, Random
from barnabas.model.settings import INT_MAX
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.raft_driver import read_stored_epoch
from barnabas.storage import checkpoints
from barnabas.storage.log_directory import find_logs
from barnabas.storage.torn import find_damage
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import FeatureLevelRecord
from barnabas.wire.stored.metadata_topics import ConfigRecord

BOOTSTRAP_FILE = "bootstrap.checkpoint"
FRESH_FILES = frozenset({BOOTSTRAP_FILE, checkpoints.META_PROPERTIES, ".lock", "lost+found"})
"""All that is in a folder that was formatted and not started on."""


class WrongFolder(Exception):
    """The folder belongs to another node or cluster, or what it held has suffered."""


def random_uuid(random: Random) -> Uuid:
    """Random bits marked as a version 4 UUID, never one of the reserved ones."""
    raw = bytearray(random.randbytes(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return Uuid(bytes(raw))


def node_id_of(disk: Disk, root: str) -> int | None:
    """The node that a folder belongs to, where it has been formatted."""
    text = (read_identity(disk, root) or {}).get("node.id")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(INT_MAX)) and int(text) <= INT_MAX):
        raise WrongFolder(f"{root}/{checkpoints.META_PROPERTIES} is damaged: {text[:80]!r} is no node.id")
    return int(text)


def read_identity(disk: Disk, root: str) -> dict[str, str] | None:
    try:
        return checkpoints.read_meta_properties(disk, root)
    except checkpoints.MalformedCheckpoint as problem:
        raise WrongFolder(str(problem)) from problem


def check_unclaimed(disk: Disk, roots: Sequence[str]) -> None:
    """Where the metadata would be made anew, there must be nothing that only the lost metadata knows of."""
    if not disk.exists(f"{roots[0]}/{BOOTSTRAP_FILE}"):
        check_empty(disk, roots, f"there is no metadata log in {roots[0]}")


def check_empty(disk: Disk, roots: Sequence[str], reason: str) -> None:
    for root in roots:
        for partition, _ in find_logs(disk, root):
            raise WrongFolder(
                f"{root} holds partitions, {partition} for one, but {reason}: nothing is touched. Give the folder of a "
                f"single node with all that was in it, or another --data"
            )


def check_formatted(disk: Disk, root: str, settings: BrokerSettings) -> None:
    """A node of a larger cluster does not format itself: it would begin a cluster of its own."""
    if disk.exists(f"{root}/{BOOTSTRAP_FILE}"):
        _check_metadata_folder(disk, root, settings)
        return
    joins = settings.controller_quorum_bootstrap_servers or settings.controller_quorum_voters
    if joins or "controller" not in settings.process_roles:
        raise WrongFolder(
            f"{root} is not formatted, and a node that joins a cluster does not format it by itself. Run: barnabas "
            "storage format --cluster-id ID --config FILE"
        )


def _check_metadata_folder(disk: Disk, root: str, settings: BrokerSettings) -> None:
    """A voter that begins anew under its old identity has forgotten its votes, and what it had acknowledged.

    Kafka's storage tool leaves no metadata folder where it formats with --no-initial-controllers.
    """
    directory = f"{root}/{METADATA_TOPIC}-0"
    if disk.exists(directory) or not settings.controller_quorum_bootstrap_servers:
        return
    if not set(disk.list(root)) <= FRESH_FILES:
        raise WrongFolder(
            f"{directory} is missing, though {root} is formatted and in use: its metadata log and its vote are "
            f"lost. Move {root} away, run barnabas storage format with --no-initial-controllers; where the node was "
            "a voter, remove it from the voters and add it again"
        )
    disk.make_directory(directory)
    checkpoints.write_partition_metadata(disk, directory, METADATA_TOPIC_ID, sync=True)


def check_undamaged(disk: Disk, root: str) -> None:
    """The metadata log is not cut where it was sound once: all that was made since would be lost with it."""
    directory = f"{root}/{METADATA_TOPIC}-0"
    closed_in = _closed_in(disk, root, directory)
    damage = find_damage(disk, directory, closed_in=closed_in) if disk.exists(directory) else None
    if damage is not None:
        path, position = damage
        raise WrongFolder(
            f"{path} is damaged at byte {position}, and no crash has left it so: nothing is touched. Restore the "
            f"folder from a backup; to go on without what the metadata log says from there on, cut the file there"
        )


def _closed_in(disk: Disk, root: str, directory: str) -> int | None:
    """The epoch in which the node was last stopped cleanly; None where it was not."""
    if checkpoints.read_clean_shutdown(disk, root) is None:
        return None
    try:
        return read_stored_epoch(disk, directory)
    except (FileMissing, ValueError):
        return -1


def check_complete(disk: Disk, roots: Sequence[str], fresh: Sequence[str], image: MetadataImage, node_id: int) -> None:
    """A data folder without an identity may be a new one, or a disk that is not mounted."""
    if not fresh:
        return
    found = {partition for root in roots for partition, _ in find_logs(disk, root)}
    for topic in image.topics.values():
        for number, state in enumerate(topic.partitions):
            if node_id in state.replicas and TopicPartition(topic.name, number) not in found:
                raise WrongFolder(
                    f"{fresh[0]} is empty, and {topic.name}-{number}, for one, is in no data folder: is its disk "
                    f"mounted? If its data is gone for good, start once without that folder"
                )


def identify(
    disk: Disk, roots: Sequence[str], node_id: int, random: Random
) -> tuple[str, list[Uuid], Mapping[str, Uuid]]:
    """(cluster id, directory id of each folder, those of them that ``claim`` is yet to write)."""
    found = [read_identity(disk, root) for root in roots]
    cluster_ids = {properties["cluster.id"] for properties in found if properties and "cluster.id" in properties}
    if len(cluster_ids) > 1:
        raise WrongFolder(f"the data folders belong to different clusters: {', '.join(sorted(cluster_ids))}")
    cluster_id = cluster_ids.pop() if cluster_ids else uuid_text(random_uuid(random))
    directory_ids, fresh = [], {}
    for root, properties in zip(roots, found, strict=True):
        if properties is None:
            directory_id = fresh[root] = random_uuid(random)
        else:
            directory_id = _directory_id(disk, root, properties, cluster_id, node_id, random)
        directory_ids.append(directory_id)
    return cluster_id, directory_ids, fresh


def claim(disk: Disk, fresh: Mapping[str, Uuid], cluster_id: str, node_id: int) -> None:
    """Gives folders without an identity theirs."""
    for root, directory_id in fresh.items():
        _write_identity(disk, root, cluster_id, node_id, directory_id)


def _write_identity(disk: Disk, root: str, cluster_id: str, node_id: int, directory_id: Uuid) -> None:
    checkpoints.write_meta_properties(
        disk,
        root,
        {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": uuid_text(directory_id)},
    )


def check_identity(root: str, properties: Mapping[str, str], node_id: int) -> Uuid | None:
    """The directory id, where the folder has one. Raises WrongFolder for an identity that cannot be ours."""
    if properties.get("version") != "1":
        raise WrongFolder(f"{root}/meta.properties has version {properties.get('version')}; 1 is what is understood")
    if not properties.get("cluster.id"):
        raise WrongFolder(f"{root}/meta.properties is damaged: it has no cluster.id")
    if properties.get("node.id", str(node_id)) != str(node_id):
        raise WrongFolder(
            f"{root} belongs to node {properties['node.id']}, and node.id is {node_id}: "
            f"start with --set node.id={properties['node.id']}"
        )
    if "directory.id" not in properties:
        return None
    try:
        return uuid_from_text(properties["directory.id"])
    except ValueError as problem:
        raise WrongFolder(f"{root}/meta.properties is damaged: its directory.id is {problem}") from problem


def _directory_id(
    disk: Disk, root: str, properties: Mapping[str, str], cluster_id: str, node_id: int, random: Random
) -> Uuid:
    directory_id = check_identity(root, properties, node_id)
    if directory_id is not None:
        return directory_id
    directory_id = random_uuid(random)
    _write_identity(disk, root, cluster_id, node_id, directory_id)
    return directory_id


def bootstrap_records(disk: Disk, root: str, min_in_sync_replicas: str) -> list[Message]:
    """What a new cluster's log begins with: the features that the folder was formatted with.

    Kafka writes min.insync.replicas because of eligible leader replicas (KIP-966).
    """
    records = list(metadata_snapshot.read(disk, f"{root}/{BOOTSTRAP_FILE}").records)
    records.append(
        ConfigRecord(
            resource_type=BROKER_RESOURCE, resource_name="", name="min.insync.replicas", value=min_in_sync_replicas
        )
    )
    return records


def format_metadata(disk: Disk, root: str, me: Voter, endpoints: metadata_snapshot.Endpoints, now_ms: int) -> str:
    """The folder of the metadata log of a cluster of one, made ready where it is new; returns its path."""
    directory = f"{root}/{METADATA_TOPIC}-0"
    if not disk.exists(f"{root}/{BOOTSTRAP_FILE}"):
        voters = VoterSet((VoterNode(me, tuple(endpoints)),))
        _format_metadata(disk, root, voters, BOOTSTRAP_FEATURES, now_ms)
    return directory


def format_folder(
    disk: Disk,
    root: str,
    *,
    cluster_id: str,
    node_id: int,
    directory_id: Uuid,
    voters: VoterSet | None,
    features: Mapping[str, int],
    holds_metadata: bool,
    now_ms: int,
) -> None:
    """Formats an empty folder; ``voters`` are the first of a new cluster. Its identity is written last."""
    check_empty(disk, [root], "it is not formatted")
    if holds_metadata:
        _format_metadata(disk, root, voters, features, now_ms)
    _write_identity(disk, root, cluster_id, node_id, directory_id)


def _format_metadata(disk: Disk, root: str, voters: VoterSet | None, features: Mapping[str, int], now_ms: int) -> None:
    directory = f"{root}/{METADATA_TOPIC}-0"
    disk.make_directory(directory)
    checkpoints.write_partition_metadata(disk, directory, METADATA_TOPIC_ID, sync=True)
    if voters is not None and not metadata_snapshot.list_snapshots(disk, directory):
        metadata_snapshot.write(
            disk,
            f"{directory}/{metadata_snapshot.file_name(0, 0)}",
            [],
            raft_epoch=0,
            timestamp_ms=now_ms,
            quorum=metadata_snapshot.voter_entries(voters),
        )
    records: list[Message] = [FeatureLevelRecord(name=name, feature_level=level) for name, level in features.items()]
    # Written last: its presence says that the folder is complete.
    metadata_snapshot.write(disk, f"{root}/{BOOTSTRAP_FILE}", records, raft_epoch=0, timestamp_ms=0)
    disk.sync_directory(root)
