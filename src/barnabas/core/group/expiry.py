"""Expiry of committed offsets after offsets.retention.minutes (KIP-211), and of groups without any left.

The time counts from when the last member left; for a group that never had members (it only stores offsets), from each
commit. A stable group with members keeps the offsets of subscribed topics; the others expire by the time of their
commit. Commits of versions 2 to 4 may carry their own retention time.
"""

from __future__ import annotations

from barnabas.core.group.classic import ClassicGroup, State
from barnabas.core.group.offsets import CommittedOffset, Offsets, tombstone
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.subscriptions import CONSUMER, Subscription
from barnabas.wire.stored.classic_group import GroupMetadataKey


def expired(
    group_id: str, group: ClassicGroup | None, offsets: Offsets, wall_ms: int, retention_ms: int
) -> list[GroupRecord]:
    if group is not None and not _may_expire(group):
        return []
    subscription = Subscription(group)
    emptied_ms = _emptied_at(group)
    known = offsets.of(group_id)
    records = [
        tombstone(group_id, place)
        for place, committed in known.items()
        if place[0] not in subscription
        and _due(committed, emptied_ms, retention_ms) <= wall_ms
        and not offsets.is_unstable(group_id, place)
    ]
    is_over = group is not None and group.state is State.EMPTY and not group.pending
    if is_over and len(records) == len(known) and not offsets.has_open(group_id):
        records.append(GroupRecord(GroupMetadataKey(group_id), None))
    return records


def _may_expire(group: ClassicGroup) -> bool:
    if group.state is State.EMPTY:
        return True
    return group.state is State.STABLE and group.protocol_type == CONSUMER and Subscription(group).is_known


def _emptied_at(group: ClassicGroup | None) -> int:
    if group is None or group.protocol_type is None or group.state is not State.EMPTY:
        return -1
    return group.state_since_ms


def _due(committed: CommittedOffset, emptied_ms: int, retention_ms: int) -> int:
    """Kafka looks at ``emptied_ms`` alone where it is known; an offset set by hand since then is kept as long here."""
    if committed.expire_timestamp_ms >= 0:
        return committed.expire_timestamp_ms
    return max(committed.commit_timestamp_ms, emptied_ms) + retention_ms
