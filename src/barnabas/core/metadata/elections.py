"""Leader elections: partition changes when brokers are fenced, unfenced or shut down.

A partition's leader is in sync and unfenced, or there is none. Only the last in-sync replica may lead again: it alone
has every acknowledged record. After a controlled shutdown it is written as an empty in-sync set with the broker among
the eligible leader replicas, as in Kafka (KIP-966); after a crash it stays in the in-sync set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from barnabas.core.metadata.image import MetadataImage, PartitionImage
from barnabas.model.ids import NO_LEADER
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import PartitionChangeRecord


def leaders_lost(image: MetadataImage, gone: Collection[int], *, controlled: bool) -> Iterator[Message]:
    """Changes for the partitions that the brokers ``gone`` lead or are in sync with.

    All that go in one decision are given together: a change made for one alone could elect another of them.
    """
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            if partition.leader in gone or any(node in gone for node in partition.in_sync_replicas):
                change = PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id)
                if _lose(image, partition, gone, change, controlled=controlled):
                    yield change


def _lose(
    image: MetadataImage,
    partition: PartitionImage,
    gone: Collection[int],
    change: PartitionChangeRecord,
    *,
    controlled: bool,
) -> bool:
    """Fills in the change; False where there is nothing to change."""
    leader_lost = partition.leader in gone
    remaining = [node for node in partition.in_sync_replicas if node not in gone]
    if remaining:
        change.isr = remaining
        if leader_lost:
            change.leader = _first_serving(image, partition.replicas, remaining)
        return True
    if leader_lost:
        change.leader = NO_LEADER
    if controlled:
        eligible = [*partition.eligible_leader_replicas, *partition.in_sync_replicas]
        change.isr = []
        change.eligible_leader_replicas = list(dict.fromkeys(eligible))
        change.last_known_elr = [partition.leader if leader_lost else partition.in_sync_replicas[0]]
    return controlled or leader_lost


def _first_serving(image: MetadataImage, replicas: Sequence[int], in_sync: Collection[int]) -> int:
    """The first of the replicas, which stand in order of preference, that may lead."""
    for node in replicas:
        broker = image.brokers.get(node)
        if node in in_sync and broker is not None and broker.serves:
            return node
    return NO_LEADER


def leaders_gained(image: MetadataImage, node: int) -> Iterator[Message]:
    """Elections for partitions without a leader that ``node``, now serving, may lead without loss."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            if partition.leader != NO_LEADER:
                continue
            change = PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, leader=node)
            if node in partition.in_sync_replicas:
                # Those that are still away would hold the high watermark back; they catch up and join again.
                serving = [other for other in partition.in_sync_replicas if other == node or _serves(image, other)]
                if len(serving) < len(partition.in_sync_replicas):
                    change.isr = serving
                yield change
            elif not partition.in_sync_replicas and node in partition.eligible_leader_replicas:
                change.isr = [node]
                change.eligible_leader_replicas = [n for n in partition.eligible_leader_replicas if n != node]
                change.last_known_elr = []
                yield change


def _serves(image: MetadataImage, node: int) -> bool:
    broker = image.brokers.get(node)
    return broker is not None and broker.serves
