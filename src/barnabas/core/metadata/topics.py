"""Decisions about topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_LEADER, ZERO_UUID, Uuid
from barnabas.model.ports import Random
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_topics

MAX_NAME_LENGTH = 249
MAX_PARTITIONS_PER_REQUEST = 10_000
"""More in one request would be one append, one sync and one image of that size: a pause for everyone else."""

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str) -> None:
    """Kafka's rules; they also keep a topic's name from being any other path than its own folder."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = "'.' or '..' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"the length of '{name[:32]}…' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.issuperset(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_free(image: MetadataImage, name: str) -> None:
    if name in image.topics or name == METADATA_TOPIC:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        # Metric names replace dots by underscores: two topics must not become one there.
        folded = name.replace(".", "_")
        for other in image.topics:
            if len(other) == len(name) and other.replace(".", "_") == folded:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )


def new_topic_id(image: MetadataImage, random: Random) -> Uuid:
    while True:
        candidate = Uuid(random.randbytes(16))
        if candidate not in (ZERO_UUID, METADATA_TOPIC_ID) and candidate not in image.topics_by_id:
            return candidate


def check_partition_count(count: int) -> None:
    if count <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions in one request; at most {MAX_PARTITIONS_PER_REQUEST} are taken.",
        )


def place(image: MetadataImage, count: int, replication_factor: int, first: int, random: Random) -> list[list[int]]:
    """Replicas for ``count`` partitions: leaders go round the brokers, followers shift with every round."""
    brokers = sorted(node for node, broker in image.brokers.items() if broker.serves)
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered.",
        )
    start = random.randrange(0, len(brokers))
    size = len(brokers)
    return [_spread(brokers, start + first + p, (first + p) // size, replication_factor) for p in range(count)]


def _spread(brokers: list[int], leader: int, shift: int, replication_factor: int) -> list[int]:
    size = len(brokers)
    others = [1 + (shift + k) % (size - 1) for k in range(replication_factor - 1)]  # none where size is 1
    return [brokers[leader % size], *(brokers[(leader + step) % size] for step in others)]


def check_assignment(image: MetadataImage, replicas: Sequence[int], width: int) -> None:
    if not replicas:
        problem = "The manual partition assignment includes an empty replica list."
    elif len(set(replicas)) != len(replicas):
        problem = f"The manual partition assignment includes the broker {replicas[0]} more than once."
    elif len(replicas) != width:
        problem = f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
        problem += f"not consistent with previous partitions, which have {width} replica(s)."
    else:
        unknown = [node for node in replicas if node not in image.brokers]
        if not unknown:
            return
        problem = f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def partition_record(image: MetadataImage, topic_id: Uuid, number: int, replicas: Sequence[int]) -> Message:
    in_sync = [node for node in replicas if image.brokers[node].serves]
    if not in_sync:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All brokers specified in the manual assignment are fenced."
        )
    return metadata_topics.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_default_directory(image, node) for node in replicas],
    )


def _default_directory(image: MetadataImage, node: int) -> bytes:
    """A broker with one folder has no choice; with several it reports where it put the replica."""
    directories = image.brokers[node].directories
    return directories[0] if len(directories) == 1 else ZERO_UUID


def leaders_lost(image: MetadataImage, node: int, *, controlled: bool) -> Iterable[Message]:
    """Changes for the partitions that ``node`` leads or is in sync with, when it goes.

    The last in-sync replica stays the one that may lead again. After a controlled shutdown Kafka writes that as an
    empty in-sync set with the node among the eligible leader replicas (KIP-966); we write the same.
    """
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            change = _without(image, topic, number, partition, node, controlled=controlled)
            if change is not None:
                yield change


def _without(
    image: MetadataImage, topic: TopicImage, number: int, partition: PartitionImage, node: int, *, controlled: bool
) -> Message | None:
    if node not in partition.in_sync_replicas and partition.leader != node:
        return None
    change = metadata_topics.PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id)
    remaining = [other for other in partition.in_sync_replicas if other != node]
    if remaining:
        change.isr = remaining
        if partition.leader == node:
            change.leader = next((other for other in remaining if image.brokers[other].serves), NO_LEADER)
        return change
    if partition.leader == node:
        change.leader = NO_LEADER
    if controlled:
        change.isr, change.eligible_leader_replicas, change.last_known_elr = [], [node], [node]
    elif partition.leader != node:
        return None
    return change


def leaders_gained(image: MetadataImage, node: int) -> Iterable[Message]:
    """Elections for partitions without a leader that ``node``, now serving, may lead without loss."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            if partition.leader != NO_LEADER:
                continue
            if node in partition.in_sync_replicas:
                yield metadata_topics.PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, leader=node)
            elif not partition.in_sync_replicas and node in partition.eligible_leader_replicas:
                yield metadata_topics.PartitionChangeRecord(
                    partition_id=number,
                    topic_id=topic.topic_id,
                    leader=node,
                    isr=[node],
                    eligible_leader_replicas=[n for n in partition.eligible_leader_replicas if n != node],
                    last_known_elr=[],
                )
