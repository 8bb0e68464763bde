"""The small text files of a data folder, in Kafka's formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from barnabas.model.ids import TopicPartition, Uuid, uuid_from_text, uuid_text
from barnabas.model.ports import Disk, FileMissing

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"


class MalformedCheckpoint(Exception):
    """The content does not have the format of a checkpoint."""


def format_lines(rows: Iterable[Iterable[object]], *, version: int = 0) -> bytes:
    """The version, the number of rows, the rows."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "\n".join([str(version), str(len(lines)), *lines, ""]).encode()


def parse_lines(content: bytes, columns: int) -> list[list[str]]:
    lines = content.decode(errors="replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != "0" or not lines[1].strip().isdigit():
        raise MalformedCheckpoint("the first lines must be version 0 and the number of rows")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]) or any(len(row) != columns for row in rows):
        raise MalformedCheckpoint(f"expected {lines[1]} rows of {columns} words")
    return rows


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition; empty where the file is missing."""
    try:
        rows = parse_lines(disk.read_file(path), 3)
        return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except FileMissing:
        return {}
    except ValueError as error:
        raise MalformedCheckpoint(f"{path}: {error}") from error


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_lines((partition.topic, partition.partition, offset) for partition, offset in offsets.items())


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    disk.write_file(path, format_offsets(offsets), sync=sync)


def read_partition_metadata(disk: Disk, directory: str) -> Uuid | None:
    """The topic id of a partition's folder, where it is known."""
    try:
        content = disk.read_file(f"{directory}/{PARTITION_METADATA}").decode()
        fields = dict(line.split(": ", 1) for line in content.splitlines() if line)
        return uuid_from_text(fields["topic_id"]) if fields["version"] == "0" else None
    except FileMissing:
        return None
    except (ValueError, KeyError) as error:
        raise MalformedCheckpoint(f"{directory}/{PARTITION_METADATA}: {error}") from error


def write_partition_metadata(disk: Disk, directory: str, topic_id: Uuid, *, sync: bool) -> None:
    content = f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"
    disk.write_file(f"{directory}/{PARTITION_METADATA}", content.encode(), sync=sync)


def read_properties(content: bytes) -> dict[str, str]:
    """Java's properties as far as Kafka writes them: key=value, comments, backslash before : = # !."""
    properties: dict[str, str] = {}
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"is not text: {error}") from error
    for line in lines:
        if line.strip() and line.lstrip()[0] not in "#!":
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip().replace("\\", "")
    return properties


def read_meta_properties(disk: Disk, root: str) -> dict[str, str] | None:
    path = f"{root}/{META_PROPERTIES}"
    try:
        return read_properties(disk.read_file(path))
    except FileMissing:
        return None
    except MalformedCheckpoint as error:
        raise MalformedCheckpoint(f"{path} {error}") from error


def write_meta_properties(disk: Disk, root: str, properties: Mapping[str, str]) -> None:
    lines = [f"{key}={value}" for key, value in properties.items()]
    disk.write_file(f"{root}/{META_PROPERTIES}", "\n".join(["#", *lines, ""]).encode())


def read_clean_shutdown(disk: Disk, root: str) -> int | None:
    """The broker epoch of the clean shutdown (-1 where an older marker has none), or None without a marker."""
    try:
        content = disk.read_file(f"{root}/{CLEAN_SHUTDOWN}")
    except FileMissing:
        return None
    try:
        return int(json.loads(content)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def write_clean_shutdown(disk: Disk, root: str, broker_epoch: int) -> None:
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_file(f"{root}/{CLEAN_SHUTDOWN}", content.encode())
