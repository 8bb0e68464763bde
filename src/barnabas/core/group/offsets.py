"""Committed offsets: durable, changed by replay only.

Offsets committed in an open transaction (TxnOffsetCommit) are kept separately until its marker arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.core.group.records import GroupRecord
from barnabas.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_ID, ZERO_UUID
from barnabas.wire.stored.classic_group import OffsetCommitKey, OffsetCommitValue

Place = tuple[str, int]
"""(topic, partition)."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1
    """Where in the log it was committed: a transaction that ends later does not undo a commit after its own."""


class Offsets:
    """Of all groups of one shard."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[Place, CommittedOffset]] = {}
        self._open: dict[int, dict[tuple[str, Place], CommittedOffset]] = {}
        """Producer id -> what its open transaction has committed."""
        self._pending: Counter[tuple[str, Place]] = Counter()
        """How many open transactions have committed each place."""

    def of(self, group_id: str) -> dict[Place, CommittedOffset]:
        return self._by_group.get(group_id, {})

    def groups(self) -> Iterator[str]:
        return iter(self._by_group)

    def is_unstable(self, group_id: str, place: Place) -> bool:
        """Whether an open transaction may change it."""
        return (group_id, place) in self._pending

    def has_open(self, group_id: str) -> bool:
        return any(name == group_id for name, _ in self._pending)

    def replay(self, offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        if value is None:
            self._take_away(key.group, place)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(key.group, place, committed)
        else:
            held = self._open.setdefault(producer_id, {})
            self._pending[key.group, place] += (key.group, place) not in held
            held[key.group, place] = committed

    def replay_end_marker(self, producer_id: int, *, committed: bool) -> None:
        for (group_id, place), held in self._open.pop(producer_id, {}).items():
            self._discard_pending(group_id, place)
            known = self.of(group_id).get(place)
            if committed and (known is None or held.record_offset > known.record_offset):
                self._put(group_id, place, held)

    def _discard_pending(self, group_id: str, place: Place) -> None:
        self._pending[group_id, place] -= 1
        if not self._pending[group_id, place]:
            del self._pending[group_id, place]

    def _put(self, group_id: str, place: Place, committed: CommittedOffset) -> None:
        offsets = self._by_group.get(group_id)
        if offsets is None:
            offsets = self._by_group[group_id] = {}
        offsets[place] = committed

    def _take_away(self, group_id: str, place: Place) -> None:
        if (group_id, place) in self._pending:
            del self._pending[group_id, place]
            for held in self._open.values():
                held.pop((group_id, place), None)
        offsets = self._by_group.get(group_id)
        if offsets is not None:
            offsets.pop(place, None)
            if not offsets:
                del self._by_group[group_id]


def commit_record(group_id: str, place: Place, committed: CommittedOffset) -> GroupRecord:
    if committed.expire_timestamp_ms >= 0:
        # The version of the record that holds a time of expiry holds neither of these.
        committed = committed._replace(leader_epoch=NO_LEADER_EPOCH, topic_id=ZERO_UUID)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return GroupRecord(OffsetCommitKey(group_id, *place), value)


def tombstone(group_id: str, place: Place) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, *place), None)
