"""What a change of min.insync.replicas does to eligible leader replicas (KIP-966).

Where the in-sync set is now large enough, the high watermark moves on without the eligible replicas: they stop being
eligible in the same decision. Partitions that nobody leads keep theirs, since nothing is acknowledged there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.core.metadata.configs import MIN_IN_SYNC
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import MetadataImage, TopicImage
from barnabas.core.metadata.index import PartitionIndex
from barnabas.core.metadata.partition_rules import UNCLEAN_ELECTION, PartitionRules
from barnabas.core.metadata.policy import MetadataPolicy
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import ClearElrRecord, ConfigRecord


def eligible_changes(
    image: MetadataImage, index: PartitionIndex, policy: MetadataPolicy, records: Sequence[Message]
) -> list[Message]:
    """The records that have to follow the ``records`` of a change of settings."""
    if not _changes(records, MIN_IN_SYNC):
        return []
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    rules = PartitionRules(
        delta.image(next_offset=image.next_offset, raft_epoch=image.raft_epoch, timestamp_ms=image.timestamp_ms), policy
    )
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in index.eligible_partitions():
        by_topic.setdefault(topic_id, []).append(number)
    return [
        change
        for topic_id, numbers in by_topic.items()
        for change in _of_topic(rules, image.topics_by_id[topic_id], numbers)
    ]


def allows_unclean_elections(records: Iterable[Message]) -> bool:
    """Whether partitions without a leader may get one by the changed settings."""
    return _changes(records, UNCLEAN_ELECTION)


def _changes(records: Iterable[Message], key: str) -> bool:
    return any(isinstance(record, ConfigRecord) and record.name == key for record in records)


def _of_topic(rules: PartitionRules, topic: TopicImage, numbers: list[int]) -> Iterator[Message]:
    minimum = rules.min_in_sync(topic.name)
    cleared = [
        number
        for number in numbers
        if topic.partitions[number].in_sync_replicas
        and len(topic.partitions[number].in_sync_replicas) >= min(minimum, len(topic.partitions[number].replicas))
    ]
    # One record for all, unless it would take away who may lead a partition that has no leader.
    if len(cleared) == len(numbers) and all(partition.in_sync_replicas for partition in topic.partitions):
        yield ClearElrRecord(topic_name=topic.name)
        return
    for number in cleared:
        record = rules.examine((topic.topic_id, number))
        if record is not None:
            yield record
