"""The group machine: decides about the groups of one partition of ``__consumer_offsets``.

``classic`` has the state of a group and its transitions; this module checks requests, calls the transitions, keeps
deadlines and makes records. A request that has to wait gets no reply from its own decision: its token stays in the
group until a later decision answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.core.decision import NEVER_MS, Decision, Tick
from barnabas.core.group import classic
from barnabas.core.group import records as framing
from barnabas.core.group.classic import ClassicGroup, Reply
from barnabas.core.group.commits import OffsetsTurn
from barnabas.core.group.expiry import expired
from barnabas.core.group.joining import JoiningTurn
from barnabas.core.group.listing import ListingTurn
from barnabas.core.group.membership import MembershipTurn
from barnabas.core.group.offsets import Offsets, tombstone
from barnabas.core.group.rebalancing import RebalancingTurn
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.turn import GroupPolicy, GroupRequest, Turn
from barnabas.core.txn.marker import EndMarker
from barnabas.model.errors import ErrorCode, invariant
from barnabas.model.ids import NO_PRODUCER_ID, ZERO_UUID
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
    txn_offset_commit,
)
from barnabas.wire.schema import DecodeError
from barnabas.wire.stored.classic_group import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

_DECIDE: dict[type, tuple[type[Turn], Callable[[Any, Any], None]]] = {
    join_group.JoinGroupRequest: (JoiningTurn, JoiningTurn.join),
    sync_group.SyncGroupRequest: (MembershipTurn, MembershipTurn.sync),
    heartbeat.HeartbeatRequest: (MembershipTurn, MembershipTurn.heartbeat),
    leave_group.LeaveGroupRequest: (MembershipTurn, MembershipTurn.leave),
    offset_commit.OffsetCommitRequest: (OffsetsTurn, OffsetsTurn.commit),
    txn_offset_commit.TxnOffsetCommitRequest: (OffsetsTurn, OffsetsTurn.commit_in_transaction),
    offset_fetch.OffsetFetchRequest: (OffsetsTurn, OffsetsTurn.fetch),
    offset_delete.OffsetDeleteRequest: (OffsetsTurn, OffsetsTurn.delete_offsets),
    describe_groups.DescribeGroupsRequest: (ListingTurn, ListingTurn.describe),
    list_groups.ListGroupsRequest: (ListingTurn, ListingTurn.list),
    delete_groups.DeleteGroupsRequest: (ListingTurn, ListingTurn.delete),
}
_CHANGES_MEMBERS = (join_group.JoinGroupRequest, sync_group.SyncGroupRequest, leave_group.LeaveGroupRequest)


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Offsets of topics that are gone are taken away."""

    topics: tuple[tuple[str, bytes], ...]
    """Names and ids: a topic of the same name may be there again, and be committed to."""


class GroupMachine:
    def __init__(self, policy: GroupPolicy, random: Random) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.policy = policy
        self.random = random
        self._live: dict[str, ClassicGroup] = {}
        """Groups in which someone's time can run out."""
        self.next_deadline_ms = NEVER_MS
        """No deadline of any group is earlier: ``Tick`` is due then."""
        self._expire_offsets_at_ms = 0
        self._loaded = False

    @property
    def is_live(self) -> bool:
        """Whether any group has deadlines."""
        return bool(self._live)

    # Decide

    def decide(self, token: object, request: object, now_ms: int) -> Decision:
        if not self._expire_offsets_at_ms:
            self._expire_offsets_at_ms = now_ms + self.policy.offsets_check_interval_ms
        if isinstance(request, Tick):
            return self._tick(now_ms, request.wall_ms)
        if isinstance(request, TopicsDeleted):
            return self._topics_deleted(request.topics)
        if isinstance(request, EndMarker):
            return Decision(records=[request], replies=[(token, None)])
        invariant(isinstance(request, GroupRequest), f"{type(request).__name__} is not a request about groups")
        assert isinstance(request, GroupRequest)  # for the type checker
        kind, decide = _DECIDE[type(request.message)]
        turn = kind(self, token, request, now_ms)
        decide(turn, request.message)
        if isinstance(request.message, _CHANGES_MEMBERS):
            self._note(request.message.group_id)
        elif isinstance(request.message, heartbeat.HeartbeatRequest):
            self._look_again_at(self._live.get(request.message.group_id))
        return Decision(records=turn.records, replies=turn.replies, in_memory=issubclass(kind, RebalancingTurn))

    def _note(self, group_id: str) -> None:
        """Members have come, gone, or been answered: deadlines may be nearer than they were."""
        group = self.groups.get(group_id)
        if group is not None and group.is_live:
            self._live[group_id] = group
            group.quiet_until_ms = group.next_deadline_ms()
            self._look_again_at(group)
        else:
            self._live.pop(group_id, None)

    def _look_again_at(self, group: ClassicGroup | None) -> None:
        if group is not None:
            self.next_deadline_ms = min(self.next_deadline_ms, group.quiet_until_ms)

    def _tick(self, now_ms: int, wall_ms: int) -> Decision:
        turn = MembershipTurn(self, None, GroupRequest(heartbeat.HeartbeatRequest(), 0, "", "", wall_ms), now_ms)
        for group in [each for each in self._live.values() if each.quiet_until_ms <= now_ms]:
            turn.expire(group)
            if not group.is_live:
                del self._live[group.group_id]
        self._find_next_deadline()
        if now_ms >= self._expire_offsets_at_ms:
            self._expire_offsets_at_ms = now_ms + self.policy.offsets_check_interval_ms
            turn.records += self._expired_offsets(wall_ms)
        return Decision(records=turn.records, replies=turn.replies, in_memory=True)

    def _find_next_deadline(self) -> None:
        self.next_deadline_ms = min((group.quiet_until_ms for group in self._live.values()), default=NEVER_MS)

    def _expired_offsets(self, wall_ms: int) -> list[GroupRecord]:
        retention_ms = self.policy.offsets_retention_ms
        return [
            record
            for group_id in sorted({*self.offsets.groups(), *self.groups})
            for record in expired(group_id, self.groups.get(group_id), self.offsets, wall_ms, retention_ms)
        ]

    def _topics_deleted(self, topics: tuple[tuple[str, bytes], ...]) -> Decision:
        gone = dict(topics)
        records = [
            tombstone(group_id, place)
            for group_id in sorted(self.offsets.groups())
            for place, committed in self.offsets.of(group_id).items()
            if place[0] in gone and committed.topic_id in (ZERO_UUID, gone[place[0]])
        ]
        return Decision(records=records)

    # Replay

    def replay(
        self, records: Sequence[GroupRecord | EndMarker], *, next_offset: int, raft_epoch: int, timestamp_ms: int
    ) -> None:
        """What a decision of this machine has appended."""
        first = next_offset - len(records)
        for number, record in enumerate(records):
            if isinstance(record, EndMarker):
                self.replay_end_marker(record.producer_id, record.producer_epoch, committed=record.committed)
            else:
                producer_id = record.producer.producer_id if record.producer is not None else NO_PRODUCER_ID
                self._replay(first + number, producer_id, record)

    def replay_stored(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes | None, value: bytes | None
    ) -> None:
        """A record of the log. One that this build cannot read is skipped, and stays in the log."""
        try:
            record = framing.decode(key, value)
        except DecodeError:
            return
        if record is not None:
            self._replay(offset, producer_id, record)

    def _replay(self, offset: int, producer_id: int, record: GroupRecord) -> None:
        """``producer_id`` is that of a transaction; what it commits counts when its end marker says so."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            self.offsets.replay(offset, producer_id, key, value if isinstance(value, OffsetCommitValue) else None)
        elif value is None:
            self.groups.pop(key.group, None)
            self._live.pop(key.group, None)
        elif isinstance(value, GroupMetadataValue) and self._loaded and key.group in self.groups:
            # A generation that this machine has just decided is in memory already, with its waiting members.
            self.groups[key.group].recorded = value
        elif isinstance(value, GroupMetadataValue):
            self.groups[key.group] = classic.from_record(key.group, value, 0)

    def replay_end_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        self.offsets.replay_end_marker(producer_id, committed=committed)

    def loaded(self, now_ms: int, wall_ms: int) -> Sequence[Any]:
        """The log has been replayed: sessions begin anew, and groups that are too large now rebalance."""
        self._loaded = True
        self._live = {group_id: group for group_id, group in self.groups.items() if group.is_live}
        for group in self._live.values():
            for member in group.members.values():
                member.deadline_ms = now_ms + member.session_timeout_ms
            if len(group.members) > self.policy.max_size:
                group.prepare(now_ms, wall_ms, "the group is larger than group.max.size", 0)
            group.quiet_until_ms = group.next_deadline_ms()
        self._find_next_deadline()
        return ()

    def dismiss_all(self, code: ErrorCode) -> list[Reply]:
        """The shard ends: answers all waiting requests with the error."""
        return [
            reply
            for group in self._live.values()
            for member in group.members.values()
            for reply in classic.dismissed(member, code)
        ]
