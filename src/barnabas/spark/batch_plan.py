"""What the next batch reads: how far it goes, what was lost on the way, and which task reads which offsets.

Nothing here asks a broker: what a cluster holds comes in as a ``View``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.client.wire.data import OffsetRange
from barnabas.model.ids import TopicPartition
from barnabas.spark.client_settings import SparkOptionError

DEFAULT_TASK_RECORDS = 500_000
"""A batch query's tasks read up to so many, so that two partitions keep more than two cores busy. A stream's do not:
there one task per partition keeps the order of a partition's records up to the sink."""

HINT = "set failOnDataLoss to false to go on with what there is"


class View(NamedTuple):
    """What a cluster holds of the partitions that are read."""

    topic_ids: dict[str, str]
    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]


class Limits(NamedTuple):
    """Of one micro-batch; None is no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    begins: dict[TopicPartition, int]
    """Where each partition is read on."""
    corrected: dict[TopicPartition, int]
    """Those of them that the start does not tell, or tells wrongly."""
    losses: list[str]


def advance(start: Position, view: View) -> Advance:
    """Compares where the query is with what there is."""
    begins: dict[TopicPartition, int] = {}
    corrected: dict[TopicPartition, int] = {}
    losses: list[str] = []
    for partition, latest in sorted(view.latest.items()):
        begin, loss = _begin(start, partition, view)
        if loss:
            losses.append(loss)
        if begin != start.offsets.get(partition) or start.is_initial or _is_other_topic(start, partition.topic, view):
            corrected[partition] = begin
        begins[partition] = min(begin, latest)
    losses += [
        f"{gone}: the partition is gone, of which offset {start.offsets[gone]} would be read next"
        for gone in sorted(start.offsets.keys() - view.latest.keys())
    ]
    return Advance(begins=begins, corrected=corrected, losses=losses)


def _begin(start: Position, partition: TopicPartition, view: View) -> tuple[int, str | None]:
    """Where to read on, and what is lost by it."""
    earliest, latest = view.earliest[partition], view.latest[partition]
    holds = f"offsets {earliest} to {latest - 1}" if latest > earliest else f"nothing, and goes on at offset {latest}"
    wanted = start.offsets.get(partition)
    if wanted is None:
        if earliest == 0:
            return earliest, None
        return earliest, (
            f"{partition}: the partition is new to the query and its log holds {holds}: "
            f"offsets 0 to {earliest - 1} were deleted before they were read"
        )
    if _is_other_topic(start, partition.topic, view):
        return earliest, (
            f"{partition}: the topic was deleted and created again after offset {wanted} was reached: what the old one "
            f"held from there on is lost, and the new one holds {holds}"
        )
    if wanted < earliest:
        return earliest, (
            f"{partition}: offset {wanted} would be read next, but the log holds {holds}: "
            f"offsets {wanted} to {earliest - 1} were deleted before they were read"
        )
    if wanted > latest:
        return latest, f"{partition}: offset {wanted} would be read next, but the log holds {holds}: its end was lost"
    return wanted, None


def _is_other_topic(start: Position, topic: str, view: View) -> bool:
    before, now = start.topic_ids.get(topic, ""), view.topic_ids.get(topic, "")
    return bool(before and now and before != now)


def next_position(start: Position, view: View, found: Advance, max_offsets: int | None) -> Position:
    """Where the next batch ends; the start itself where there is nothing to do."""
    ends = view.latest if max_offsets is None else rate_limited(max_offsets, found.begins, view.latest)
    known_ids = {topic: view.topic_ids[topic] for topic in {each.topic for each in ends} if view.topic_ids.get(topic)}
    moved = ends != start.offsets
    if not moved and (start.is_initial or not found.corrected):
        return start
    return Position(offsets=dict(ends), topic_ids=known_ids, begins=found.corrected, query=start.query)


def is_behind(view: View, start: Position) -> bool:
    """Whether a log ends before what was read of it already."""
    return any(
        view.latest.get(partition, offset) < offset and not _is_other_topic(start, partition.topic, view)
        for partition, offset in start.offsets.items()
    )


def new_records(found: Advance, view: View) -> int:
    return sum(max(0, view.latest[partition] - begin) for partition, begin in found.begins.items())


def rate_limited(
    max_offsets: int, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The limit is shared out in proportion to what waits in each partition; none that has something gets nothing."""
    waiting = {partition: ends[partition] - begin for partition, begin in begins.items() if ends[partition] > begin}
    total = sum(waiting.values())
    if total <= max_offsets:
        return dict(ends)
    limited = dict(ends)
    for partition, count in waiting.items():
        share = max_offsets * count / total
        limited[partition] = begins[partition] + (1 if share < 1 else min(count, math.floor(share)))
    return limited


# Ranges and tasks


def ranges(start: Position, end: Position, earliest: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """What a batch between two positions reads. ``earliest`` is for partitions of which neither tells the begin."""
    found: list[OffsetRange] = []
    for partition in sorted(end.offsets):
        begin = end.begins.get(partition, start.offsets.get(partition, earliest.get(partition)))
        if begin is not None and begin < end.offsets[partition]:
            topic_id = end.topic_ids.get(partition.topic, "")
            found.append(OffsetRange(partition, begin, end.offsets[partition], topic_id))
    return found


def batch_ranges(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], view: View
) -> tuple[list[OffsetRange], list[str]]:
    """What a batch query reads, as far as it is there, and what is not. Raises SparkOptionError for the impossible."""
    found: list[OffsetRange] = []
    losses: list[str] = []
    for partition in sorted(starts):
        start, stop = starts[partition], ends[partition]
        if start > stop:
            raise SparkOptionError(f"{partition}: reading starts at offset {start}, after its end at offset {stop}")
        earliest, latest = view.earliest[partition], view.latest[partition]
        if start < stop and (start < earliest or stop > latest):
            holds = f"offsets {earliest} to {latest - 1}" if latest > earliest else "nothing"
            losses.append(f"{partition}: offsets {start} to {stop - 1} are to be read, but the log holds {holds}")
        start, stop = max(start, earliest), min(stop, latest)
        if start < stop:
            found.append(OffsetRange(partition, start, stop, view.topic_ids.get(partition.topic, "")))
    return found, losses


def without_begin(start: Position, end: Position) -> list[TopicPartition]:
    """Partitions of a batch that was planned by Spark's own Kafka source, which does not note where it begins."""
    return sorted(end.offsets.keys() - end.begins.keys() - start.offsets.keys())


def split(found: Iterable[OffsetRange], *, min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Ranges for tasks: first no longer than ``max_records``, and where they are still too few, by their sizes."""
    pieces = [each for each in found if each.size > 0]
    if max_records is not None:
        pieces = [piece for each in pieces for piece in _cut(each, math.ceil(each.size / max_records))]
    if min_partitions is None or len(pieces) >= min_partitions or not pieces:
        return pieces
    return _split_by_size(pieces, min_partitions)


def _split_by_size(pieces: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Small ranges stay whole and do not count in the proportions of the large."""
    total = sum(piece.size for piece in pieces)
    small = {piece for piece in pieces if _parts(piece.size, total, min_partitions) == 1}
    large_total = total - sum(piece.size for piece in small)
    left = max(1, min_partitions - len(small))
    return [
        part for piece in pieces for part in _cut(piece, 1 if piece in small else _parts(piece.size, large_total, left))
    ]


def _parts(size: int, total: int, count: int) -> int:
    return max(1, math.floor(size / total * count + 0.5))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """As even as can be."""
    parts = min(parts, whole.size)
    edges = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=edges[number], stop=edges[number + 1]) for number in range(parts)]


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
