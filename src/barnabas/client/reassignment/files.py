"""The JSON files of Kafka's tools: topics to move, reassignments, partitions for an election."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from barnabas.client.reassignment.layout import Assignment
from barnabas.model.ids import TopicPartition

ANY_FOLDER = "any"

T = TypeVar("T")


class FileError(Exception):
    """The text is not what the tool needs. One sentence."""


class _Topic(msgspec.Struct):
    topic: str


class _Topics(msgspec.Struct):
    topics: list[_Topic]
    version: int = 1


class _Partition(msgspec.Struct):
    topic: str
    partition: int


class _Partitions(msgspec.Struct):
    partitions: list[_Partition]
    version: int = 1


class _Reassigned(_Partition):
    replicas: list[int]
    log_dirs: list[str] | None = None


class _Reassignment(msgspec.Struct):
    partitions: list[_Reassigned]
    version: int = 1


def read_topics(text: bytes, name: str) -> list[str]:
    """``{"topics": [{"topic": "foo"}], "version": 1}``. Raises FileError."""
    return list(dict.fromkeys(each.topic for each in _decode(text, _Topics, name).topics))


def read_partitions(text: bytes, name: str) -> list[TopicPartition]:
    """``{"partitions": [{"topic": "foo", "partition": 0}]}``. Raises FileError."""
    return [TopicPartition(each.topic, each.partition) for each in _decode(text, _Partitions, name).partitions]


def read_reassignment(text: bytes, name: str) -> Assignment:
    """``{"version": 1, "partitions": [{"topic": "foo", "partition": 0, "replicas": [1, 2, 3]}]}``. Raises FileError."""
    found: Assignment = {}
    for each in _decode(text, _Reassignment, name).partitions:
        place = TopicPartition(each.topic, each.partition)
        if place in found:
            raise FileError(f"{name} names {place} twice")
        if not each.replicas or len(set(each.replicas)) != len(each.replicas):
            raise FileError(f"{name} gives {place} the replicas {each.replicas}: each broker once, and at least one")
        if any(folder != ANY_FOLDER for folder in each.log_dirs or ()):
            raise FileError(f"{name} names a data folder for {place}: brokers choose the folder, write {ANY_FOLDER!r}")
        found[place] = tuple(each.replicas)
    if not found:
        raise FileError(f"{name} names no partitions")
    return found


def reassignment_value(moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """What ``read_reassignment`` reads, and Kafka's own tool too."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "replicas": list(replicas),
                "log_dirs": [ANY_FOLDER] * len(replicas),
            }
            for place, replicas in sorted(moves.items())
        ],
    }


def reassignment_text(moves: Mapping[TopicPartition, Sequence[int]]) -> str:
    return json.dumps(reassignment_value(moves))


def _decode(text: bytes, kind: type[T], name: str) -> T:
    try:
        value = msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as problem:
        raise FileError(f"{name} cannot be read: {problem}") from problem
    if getattr(value, "version", 1) != 1:
        raise FileError(f"{name} has a version that is not 1")
    return value
