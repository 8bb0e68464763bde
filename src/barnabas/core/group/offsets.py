"""Committed offsets: durable, changed by replay only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.core.group.records import GroupRecord
from barnabas.wire.stored.classic_group import OffsetCommitKey, OffsetCommitValue

Place = tuple[str, int]
"""(topic, partition)."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = bytes(16)


class Offsets:
    """Of all groups of one shard."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[Place, CommittedOffset]] = {}

    def of(self, group_id: str) -> dict[Place, CommittedOffset]:
        return self._by_group.get(group_id, {})

    def groups(self) -> Iterator[str]:
        return iter(self._by_group)

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        if value is not None:
            self._by_group.setdefault(key.group, {})[place] = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
            )
            return
        offsets = self._by_group.get(key.group)
        if offsets is not None:
            offsets.pop(place, None)
            if not offsets:
                del self._by_group[key.group]


def commit_record(group_id: str, place: Place, committed: CommittedOffset) -> GroupRecord:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return GroupRecord(OffsetCommitKey(group_id, *place), value)


def tombstone(group_id: str, place: Place) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, *place), None)
