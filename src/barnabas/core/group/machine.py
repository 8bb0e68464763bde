"""The group machine: decides about the groups of one partition of ``__consumer_offsets``.

``classic`` holds what a group is and how it moves between its states; here requests are checked and turned into those
moves, deadlines are kept, and records are made. A request that has to wait gets no reply from its own decision: its
token stays in the group until a later decision answers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.core.decision import Decision
from barnabas.core.group import classic
from barnabas.core.group.classic import ClassicGroup, Reply, State
from barnabas.core.group.commits import OffsetsTurn
from barnabas.core.group.listing import ListingTurn
from barnabas.core.group.membership import MembershipTurn
from barnabas.core.group.offsets import Offsets, tombstone
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.turn import GroupPolicy, GroupRequest, Turn
from barnabas.model.errors import ErrorCode, invariant
from barnabas.model.ports import Random
from barnabas.wire.api import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from barnabas.wire.stored.classic_group import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

_DECIDE: dict[type, tuple[type[Turn], str]] = {
    join_group.JoinGroupRequest: (MembershipTurn, "join"),
    sync_group.SyncGroupRequest: (MembershipTurn, "sync"),
    heartbeat.HeartbeatRequest: (MembershipTurn, "heartbeat"),
    leave_group.LeaveGroupRequest: (MembershipTurn, "leave"),
    offset_commit.OffsetCommitRequest: (OffsetsTurn, "commit"),
    offset_fetch.OffsetFetchRequest: (OffsetsTurn, "fetch"),
    offset_delete.OffsetDeleteRequest: (OffsetsTurn, "delete_offsets"),
    describe_groups.DescribeGroupsRequest: (ListingTurn, "describe"),
    list_groups.ListGroupsRequest: (ListingTurn, "list"),
    delete_groups.DeleteGroupsRequest: (ListingTurn, "delete"),
}


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has gone on."""

    wall_ms: int


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Offsets of topics that are gone are taken away."""

    topics: tuple[str, ...]


class GroupMachine:
    def __init__(self, policy: GroupPolicy, random: Random) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.policy = policy
        self.random = random
        self._expire_offsets_at_ms = 0
        self._loaded = False

    @property
    def is_live(self) -> bool:
        """Whether anyone's time can run out: then ``Tick`` is due now and then."""
        return any(group.members or group.pending for group in self.groups.values())

    # Decide

    def decide(self, token: object, request: object, now_ms: int) -> Decision:
        if not self._expire_offsets_at_ms:
            self._expire_offsets_at_ms = now_ms + self.policy.offsets_check_interval_ms
        if isinstance(request, Tick):
            return self._tick(now_ms, request.wall_ms)
        if isinstance(request, TopicsDeleted):
            return self._topics_deleted(request.topics)
        invariant(isinstance(request, GroupRequest), f"{type(request).__name__} is not a request about groups")
        assert isinstance(request, GroupRequest)  # for the type checker
        kind, method = _DECIDE[type(request.message)]
        turn = kind(self, token, request, now_ms)
        getattr(turn, method)(request.message)
        return Decision(records=turn.records, replies=turn.replies)

    def _tick(self, now_ms: int, wall_ms: int) -> Decision:
        decision = Decision(records=[])
        for group in list(self.groups.values()):
            turn = MembershipTurn(self, None, GroupRequest(heartbeat.HeartbeatRequest(), 0, "", "", wall_ms), now_ms)
            turn.expire(group)
            decision.records = [*decision.records, *turn.records]
            decision.replies += turn.replies
        if now_ms >= self._expire_offsets_at_ms:
            self._expire_offsets_at_ms = now_ms + self.policy.offsets_check_interval_ms
            decision.records = [*decision.records, *self._expired_offsets(wall_ms)]
        return decision

    def _expired_offsets(self, wall_ms: int) -> list[GroupRecord]:
        """Offsets of groups that have been empty for offsets.retention.minutes, and then the groups themselves."""
        records: list[GroupRecord] = []
        for group_id in sorted({*self.offsets.groups(), *self.groups}):
            group = self.groups.get(group_id)
            if group is not None and group.state is not State.EMPTY:
                continue
            left = 0
            for place, committed in self.offsets.of(group_id).items():
                since = committed.commit_timestamp_ms
                if group is not None and group.protocol_type:
                    since = max(since, group.state_since_ms)
                due = (
                    committed.expire_timestamp_ms
                    if committed.expire_timestamp_ms >= 0
                    else since + self.policy.offsets_retention_ms
                )
                if due <= wall_ms:
                    records.append(tombstone(group_id, place))
                else:
                    left += 1
            if group is not None and not left and not group.pending:
                records.append(GroupRecord(GroupMetadataKey(group_id), None))
        return records

    def _topics_deleted(self, topics: tuple[str, ...]) -> Decision:
        gone = set(topics)
        records = [
            tombstone(group_id, place)
            for group_id in sorted(self.offsets.groups())
            for place in self.offsets.of(group_id)
            if place[0] in gone
        ]
        return Decision(records=records)

    # Replay

    def replay(self, records: Sequence[GroupRecord], *, next_offset: int, raft_epoch: int, timestamp_ms: int) -> None:
        for key, value in records:
            if isinstance(key, OffsetCommitKey):
                self.offsets.replay(key, value if isinstance(value, OffsetCommitValue) else None)
            elif value is None:
                self.groups.pop(key.group, None)
            elif isinstance(value, GroupMetadataValue):
                self._replay_group(key.group, value)

    def _replay_group(self, group_id: str, value: GroupMetadataValue) -> None:
        """The generation that a decision of ours has just recorded is in memory already, with those who wait."""
        group = self.groups.get(group_id)
        if group is None or group.generation != value.generation or not self._loaded:
            self.groups[group_id] = classic.from_record(group_id, value, 0)

    def loaded(self, now_ms: int) -> None:
        """The log has been replayed: sessions begin anew."""
        self._loaded = True
        for group in self.groups.values():
            for member in group.members.values():
                member.deadline_ms = now_ms + member.session_timeout_ms

    def dismiss_all(self, code: ErrorCode) -> list[Reply]:
        """The shard goes: everyone who waits is told."""
        return [
            reply
            for group in self.groups.values()
            for member in group.members.values()
            for reply in classic.dismissed(member, code)
        ]
