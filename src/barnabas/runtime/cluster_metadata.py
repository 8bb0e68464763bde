"""The committed metadata of a node, in any role: an image that follows the committed records of the metadata log.

On the active controller the records come from its own decisions; everywhere else, and before it has become active, the
raft driver delivers them. Nobody sees an image that a failover may undo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.wire.schema import Message

Publish = Callable[[MetadataDelta, MetadataImage], None]


class ClusterMetadata:
    def __init__(self, publish: Publish) -> None:
        self.committed: MetadataImage = EMPTY_IMAGE
        self._publish = publish

    def replay(self, records: Sequence[Message], *, next_offset: int, raft_epoch: int, timestamp_ms: int) -> None:
        """Committed records, in the order of the log."""
        delta = MetadataDelta(self.committed)
        for record in records:
            delta.replay(record)
        delta.image(next_offset=next_offset, raft_epoch=raft_epoch, timestamp_ms=timestamp_ms)
        self.commit(delta)

    def install(self, records: Sequence[Message], *, next_offset: int, raft_epoch: int, timestamp_ms: int) -> None:
        """A snapshot: the image begins anew."""
        fresh = MetadataDelta(EMPTY_IMAGE)
        for record in records:
            fresh.replay(record)
        image = fresh.image(next_offset=next_offset, raft_epoch=raft_epoch, timestamp_ms=timestamp_ms)
        self.commit(_difference(self.committed, image))

    def commit(self, delta: MetadataDelta) -> None:
        self.committed = delta.result
        self._publish(delta, delta.result)


def _difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """What has changed between two images whose records between are not known."""
    delta = MetadataDelta(before)
    delta.result = after
    delta.removed_topics = {
        topic_id: topic for topic_id, topic in before.topics_by_id.items() if topic_id not in after.topics_by_id
    }
    delta.changed_topics = {
        topic_id for topic_id, topic in after.topics_by_id.items() if before.topics_by_id.get(topic_id) != topic
    }
    delta.changed_brokers = {
        node for node in {*before.brokers, *after.brokers} if before.brokers.get(node) != after.brokers.get(node)
    }
    delta.changed_configs = {
        resource
        for resource in {*before.configs, *after.configs}
        if before.configs.get(resource) != after.configs.get(resource)
    }
    return delta
