"""How far a stream has come, as it stands in the checkpoint.

The form is that of Spark's Kafka source, offsets by topic and partition, so that what reads a query's progress reads
ours, and a checkpoint of that source can be taken over. What is ours stands under ``~``, which no topic can be called:

    {"orders": {"0": 17, "1": 23},
     "~": {"begins": {"orders": {"0": 5, "1": 23}}, "query": "6f1e…", "topics": {"orders": "Yl3…"}}}

``begins`` tells where the batch that ends here begins, for partitions of which the batch before knows nothing or
something that has become wrong: Spark keeps only ends, and a batch that is done again must read the same. ``query``
names the query over restarts. ``topics`` are the ids by which a topic is told from another of the same name. Keys are
sorted: Spark compares texts, and one that changes without cause would be a batch without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.model.ids import TopicPartition

OURS = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    offsets: dict[TopicPartition, int]
    """The next offset to read of each partition."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Nothing for topics whose broker knows no ids."""
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    query: str = ""
    is_initial: bool = False
    """Nothing was read yet: the place came from startingOffsets."""


def to_json(position: Position) -> dict[str, Any]:
    ours: dict[str, Any] = {}
    if position.begins:
        ours["begins"] = _by_topic(position.begins)
    if position.is_initial:
        ours["initial"] = True
    if position.query:
        ours["query"] = position.query
    if position.topic_ids:
        ours["topics"] = dict(sorted(position.topic_ids.items()))
    return _by_topic(position.offsets) | ({OURS: ours} if ours else {})


def from_json(found: Mapping[str, Any]) -> Position:
    ours = found.get(OURS, {})
    return Position(
        offsets=_by_partition({topic: offsets for topic, offsets in found.items() if topic != OURS}),
        topic_ids=dict(ours.get("topics", {})),
        begins=_by_partition(ours.get("begins", {})),
        query=ours.get("query", ""),
        is_initial=ours.get("initial", False),
    )


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def _by_partition(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(number)): each[number] for topic, each in found.items() for number in each}
