"""Decisions about members: SyncGroup, Heartbeat, LeaveGroup, session timeouts."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.group import classic, subscriptions
from barnabas.core.group.classic import ClassicGroup, Member, State
from barnabas.core.group.rebalancing import RebalancingTurn, because, who
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_FROM_VERSION = 5
"""KIP-559: from here on a sync must name the protocol."""
SEVERAL_LEAVE_FROM_VERSION = 3
"""KIP-345."""


class MembershipTurn(RebalancingTurn):
    # Syncing and living

    def sync(self, request: SyncGroupRequest) -> None:
        try:
            named = request.protocol_type is not None and request.protocol_name is not None
            if self._request.version >= PROTOCOL_FROM_VERSION and not named:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            group = self._existing(request.group_id)
            member = self._find(group, request.member_id, request.group_instance_id)
            self._check_generation(group, request.generation_id)
            self._check_protocol(group, request)
            self._sync(group, member, request)
        except ApiError as problem:
            self._reply(SyncGroupResponse(error_code=problem.code))

    @staticmethod
    def _check_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
        for told, ours in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
            if told is not None and ours is not None and told != ours:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _sync(self, group: ClassicGroup, member: Member, request: SyncGroupRequest) -> None:
        if group.state is State.PREPARING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        member.owes_sync = False
        self.replies += classic.dismissed(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.syncing, member.may_wait = self._token, self._request.may_wait
        if group.state is State.STABLE:
            self._answer_sync(group, member)
        elif member.member_id == group.leader:
            group.assign({entry.member_id: entry.assignment for entry in request.assignments}, self._request.wall_ms)
            group.is_moving = subscriptions.must_move(group)
            for each in group.members.values():
                if each.syncing is not None:
                    self._answer_sync(group, each)
            self._record(group)

    def _answer_sync(self, group: ClassicGroup, member: Member) -> None:
        """Delays the response of a member without partitions while another must revoke: a rebalance follows (ADR 5)."""
        hold_ms = self._hold_ms(member) if member.may_wait and group.is_moving else 0
        if hold_ms and subscriptions.has_nothing(member):
            member.held_until_ms = self._now_ms + hold_ms
        else:
            self.replies += group.answer_sync(member, self._now_ms)

    def _hold_ms(self, member: Member) -> int:
        return min(self._policy.heartbeat_hold_ms, member.session_timeout_ms // 3)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        try:
            group = self._existing(request.group_id)
            member = self._find(group, request.member_id, request.group_instance_id)
            self._check_generation(group, request.generation_id)
            self._beat(group, member)
        except ApiError as problem:
            self._reply(HeartbeatResponse(error_code=problem.code))

    def _beat(self, group: ClassicGroup, member: Member) -> None:
        member.deadline_ms = self._now_ms + member.session_timeout_ms
        self.replies += classic.answered_beat(member)
        if group.state is State.PREPARING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        hold_ms = self._hold_ms(member) if self._request.may_wait and group.state is State.STABLE else 0
        if not hold_ms:
            self._reply(HeartbeatResponse())
            return
        member.beating, member.held_until_ms = self._token, self._now_ms + hold_ms
        group.quiet_until_ms = min(group.quiet_until_ms, classic.release_ms(member.held_until_ms))

    # Leaving

    def leave(self, request: LeaveGroupRequest) -> None:
        if not request.group_id:
            self._reply(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        leaving = request.members
        if self._request.version < SEVERAL_LEAVE_FROM_VERSION:
            leaving = [MemberIdentity(request.member_id)]
        group = self._machine.groups.get(request.group_id)
        codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving) if group is None else self._leave(group, leaving)
        response = LeaveGroupResponse(
            members=[
                MemberResponse(identity.member_id, identity.group_instance_id, code)
                for identity, code in zip(leaving, codes, strict=True)
            ]
        )
        if self._request.version < SEVERAL_LEAVE_FROM_VERSION:
            response.error_code = codes[0]
        self._reply(response)

    def _leave(self, group: ClassicGroup, leaving: Sequence[MemberIdentity]) -> list[ErrorCode]:
        """All go before the group rebalances once."""
        codes, gone, causes = [], {}, []
        for identity in leaving:
            code = ErrorCode.NONE
            try:
                member = self._leaver(group, identity)
            except ApiError as problem:
                code = problem.code
            else:
                if member is not None and member.member_id in gone:
                    code = ErrorCode.UNKNOWN_MEMBER_ID
                elif member is not None:
                    gone[member.member_id] = member
                    causes.append(f"{who(member)} left{because(identity.reason)}")
            codes.append(code)
        if gone:
            self._remove(group, list(gone.values()), ", ".join(causes))
        return codes

    def _leaver(self, group: ClassicGroup, identity: MemberIdentity) -> Member | None:
        """None for a pending member, of which nothing is left."""
        if group.pending.pop(identity.member_id, None) is not None:
            return None
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            # An operator names a static member by its instance alone (KIP-345).
            member_id = group.static_ids.get(identity.group_instance_id, "")
        return self._find(group, member_id, identity.group_instance_id)

    # Timing out

    def expire(self, group: ClassicGroup) -> None:
        """Whose time is up: sessions, ids never joined with, and the phases of a rebalance."""
        now_ms = self._now_ms
        self._let_go(group)
        for member_id in [each for each, deadline_ms in group.pending.items() if deadline_ms <= now_ms]:
            del group.pending[member_id]
        silent = [member for member in group.members.values() if member.may_expire and member.deadline_ms <= now_ms]
        if silent:
            self._remove(group, silent, f"{who(*silent)} timed out: not heard of for {_sessions(silent)} ms")
        if group.phase_deadline_ms <= now_ms:
            self._end_phase(group)
        group.quiet_until_ms = group.next_deadline_ms()

    def _let_go(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            if group.is_held(member) and member.held_until_ms <= self._now_ms:
                self.replies += classic.answered_beat(member)
                if member.syncing is not None:
                    self.replies += group.answer_sync(member, self._now_ms)

    def _end_phase(self, group: ClassicGroup) -> None:
        if group.state is State.PREPARING:
            if not group.extend_delay(self._now_ms, self._policy.initial_rebalance_delay_ms):
                self._try_complete(group, time_is_up=True)
            return
        late = [member for member in group.members.values() if member.owes_sync]
        if late:
            self._remove(group, late, f"{who(*late)} did not sync in time")


def _sessions(members: Sequence[Member]) -> str:
    return ", ".join(str(timeout_ms) for timeout_ms in sorted({member.session_timeout_ms for member in members}))
