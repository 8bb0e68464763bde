"""Elections that the state of the brokers asks for, in steps.

When a broker with many partitions fails, one decision with all changes would block the controller. The fencing itself
is one record; the partitions are queued here and changed a few hundred at a time, each step a decision of its own that
a timer asks for at once. What a step decides follows from the image alone, so a step may be repeated, and a new
controller makes the same queue again from the index (``resume``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from barnabas.core.metadata.image import MetadataImage
from barnabas.core.metadata.index import Key, PartitionIndex, PartitionSet
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.model.ids import INTERNAL_TOPICS
from barnabas.wire.schema import Message

TIMER = "elections"
MAX_CHANGES_PER_STEP = 500
MAX_EXAMINED_PER_STEP = 2000
RETRY_MS = 200
"""After an append that failed."""


class Elections:
    """The queue is in memory only."""

    def __init__(self) -> None:
        self._queue = PartitionSet()
        self._in_flight: tuple[MetadataImage, list[Key]] | None = None
        """The image that the last step saw, and what it changed. The same image later: that was not appended."""
        self._is_armed = False
        self._not_before_ms = 0

    def resume(self, image: MetadataImage, index: PartitionIndex) -> None:
        """Another controller may have stopped half-way: queues all that may need a change."""
        self._is_armed = False
        for node_id in index.brokers_in_sync():
            broker = image.brokers.get(node_id)
            if broker is None or not broker.serves:
                self._queue.update(index.in_sync_with(node_id))
        self._queue.update(index.leaderless)

    def step(self, rules: PartitionRules, more: Iterable[PartitionSet] = ()) -> list[Message]:
        """Changes of queued partitions, as many as one decision takes, the internal topics first."""
        for partitions in more:
            self._queue.update(partitions)
        records: list[Message] = []
        changed: list[Key] = []
        for key in list(islice(self._queue, MAX_EXAMINED_PER_STEP)):
            if len(records) >= MAX_CHANGES_PER_STEP:
                break
            self._queue.discard(key)
            record = rules.examine(key)
            if record is not None:
                records.append(record)
                changed.append(key)
        if changed:
            self._in_flight = (rules.image, changed)
        return records

    def queue(self, partitions: PartitionSet) -> None:
        self._queue.update(partitions)

    def before_decision(self, image: MetadataImage, now_ms: int) -> None:
        """Queues again what the last step decided and the log did not take."""
        if self._in_flight is None:
            return
        seen, changed = self._in_flight
        self._in_flight = None
        if seen is image:
            for key in changed:
                topic = image.topics_by_id.get(key[0])
                self._queue.add(key, internal=topic is not None and topic.name in INTERNAL_TOPICS)
            self._not_before_ms = now_ms + RETRY_MS

    # Timer

    def timer(self, now_ms: int) -> list[tuple[str, int]]:
        if self._is_armed or not self._queue:
            return []
        self._is_armed = True
        return [(TIMER, max(now_ms, self._not_before_ms))]

    def on_timer(self) -> None:
        self._is_armed = False
