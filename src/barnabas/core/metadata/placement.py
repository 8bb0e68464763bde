"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.metadata.image import MetadataImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import ZERO_UUID, Uuid
from barnabas.model.ports import Random
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import PartitionRecord


def place(image: MetadataImage, count: int, replication_factor: int, first: int, random: Random) -> list[list[int]]:
    """Replicas for ``count`` partitions: leaders go round the brokers, followers shift with every round.

    Brokers that are fenced now get followers where the others are too few: they join when they are back.
    """
    serving = sorted(node for node, broker in image.brokers.items() if broker.serves)
    fenced = sorted(node for node, broker in image.brokers.items() if broker.fenced)
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(serving) + len(fenced):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(serving) + len(fenced)} broker(s) are "
            "registered.",
        )
    if not serving:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    size = len(serving)
    start = random.randrange(0, size)
    placed = []
    for number in range(first, first + count):
        replicas = _spread(serving, start + number, number // size, min(replication_factor, size))
        replicas += [fenced[(number + k) % len(fenced)] for k in range(replication_factor - size)]
        placed.append(replicas)
    return placed


def _spread(brokers: list[int], leader: int, shift: int, replication_factor: int) -> list[int]:
    size = len(brokers)
    others = [1 + (shift + k) % (size - 1) for k in range(replication_factor - 1)]  # none where size is 1
    return [brokers[leader % size], *(brokers[(leader + step) % size] for step in others)]


def check_assignment(image: MetadataImage, replicas: Sequence[int], width: int) -> None:
    problem = None
    if not replicas:
        problem = "an empty replica list."
    elif len(set(replicas)) != len(replicas):
        twice = next(node for n, node in enumerate(replicas) if node in replicas[:n])
        problem = f"the broker {twice} more than once."
    elif len(replicas) != width:
        problem = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {width} replica(s)."
        )
    else:
        unknown = next((node for node in replicas if node not in image.brokers), None)
        if unknown is not None:
            problem = f"broker {unknown}, but no such broker is registered."
    if problem:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}")


def partition_record(image: MetadataImage, topic_id: Uuid, number: int, replicas: Sequence[int]) -> Message:
    in_sync = [node for node in replicas if image.brokers[node].serves]
    if not in_sync:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
            "controlled shutdown.",
        )
    return PartitionRecord(
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
