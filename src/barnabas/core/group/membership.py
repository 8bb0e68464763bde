"""Decisions about who is in a group: joining, syncing, living on, leaving, timing out."""

from __future__ import annotations

from barnabas.core.group import classic
from barnabas.core.group.classic import ClassicGroup, Member, State
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.turn import Turn
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api import heartbeat, join_group, leave_group, sync_group
from barnabas.wire.stored.classic_group import GroupMetadataKey


class MembershipTurn(Turn):
    # Joining

    def join(self, request: join_group.JoinGroupRequest) -> None:
        try:
            self._join(request)
        except ApiError as problem:
            self._reply(join_group.JoinGroupResponse(error_code=problem.code, member_id=request.member_id))

    def _join(self, request: join_group.JoinGroupRequest) -> None:
        policy = self._policy
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if not policy.min_session_timeout_ms <= request.session_timeout_ms <= policy.max_session_timeout_ms:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._machine.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._machine.groups[request.group_id] = ClassicGroup(request.group_id)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports(request.protocol_type, names):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            self._join_new(group, request)
        else:
            self._join_known(group, request)

    def _join_new(self, group: ClassicGroup, request: join_group.JoinGroupRequest) -> None:
        stem = request.group_instance_id or self._request.client_id
        member_id = f"{stem}-{self._new_uuid()}"
        if request.group_instance_id is not None:
            if request.group_instance_id in group.static_ids:
                self._rejoin_static(group, member_id, request)
            else:
                self._check_room(group)
                self._add(group, member_id, request)
        elif self._request.version >= 4:
            self._check_room(group)
            group.pending[member_id] = self._now_ms + request.session_timeout_ms
            self._reply(join_group.JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        else:
            self._check_room(group)
            self._add(group, member_id, request)

    def _new_uuid(self) -> str:
        digits = self._machine.random.randbytes(16).hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _check_room(self, group: ClassicGroup) -> None:
        if len(group.members) + len(group.pending) >= self._policy.max_size:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _join_known(self, group: ClassicGroup, request: join_group.JoinGroupRequest) -> None:
        if request.member_id in group.pending and request.group_instance_id is None:
            self._add(group, request.member_id, request)
            return
        member = self._find(group, request.member_id, request.group_instance_id)
        protocols = classic.protocols_of(request)
        unchanged = member.protocols == protocols
        if group.state is State.COMPLETING and unchanged:
            member.deadline_ms = self._now_ms + member.session_timeout_ms
            self._reply(group.joined(member))
            return
        if group.state is State.STABLE and unchanged and group.leader != member.member_id:
            member.deadline_ms = self._now_ms + member.session_timeout_ms
            self._reply(group.joined(member))
            return
        if group.state is State.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        why = "rejoined as leader" if unchanged else "changed its subscription"
        self._update(member, request)
        self._wait_to_join(group, member, f"{_who(member)} {why}{_because(request.reason)}")

    def _add(self, group: ClassicGroup, member_id: str, request: join_group.JoinGroupRequest) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=self._request.client_id,
            client_host=self._request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout(request),
            protocols=classic.protocols_of(request),
        )
        group.add(member, request.protocol_type)
        self._wait_to_join(group, member, f"{_who(member)} joined{_because(request.reason)}")

    @staticmethod
    def _update(member: Member, request: join_group.JoinGroupRequest) -> None:
        member.protocols = classic.protocols_of(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout(request)

    def _rejoin_static(self, group: ClassicGroup, member_id: str, request: join_group.JoinGroupRequest) -> None:
        """A restarted static member takes its place; in a stable group nobody else notices (KIP-345, KIP-814)."""
        instance_id = request.group_instance_id or ""
        old_leader = group.leader
        member, replies = group.replace_static(instance_id, member_id)
        self.replies += replies
        self._update(member, request)
        member.client_id, member.client_host = self._request.client_id, self._request.client_host
        if group.state is not State.STABLE or group.select_protocol() != group.protocol:
            self._wait_to_join(group, member, f"{_who(member)} restarted")
            return
        member.deadline_ms = self._now_ms + member.session_timeout_ms
        self._record(group)
        leads = group.leader == member_id
        if self._request.version >= 9:
            self._reply(group.joined(member, skip_assignment=leads))
        else:
            # An older client would assign if it were told that it leads; the leader's former id keeps it from that.
            response = group.joined(member, leader=old_leader)
            response.members = []
            self._reply(response)

    def _wait_to_join(self, group: ClassicGroup, member: Member, cause: str) -> None:
        if member.joining is not None:
            self.replies += classic.dismissed(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.joining, member.joining_version = self._token, self._request.version
        if group.state is not State.PREPARING:
            self._prepare(group, cause)
        self._try_complete(group)

    def _prepare(self, group: ClassicGroup, cause: str) -> None:
        delay_ms = self._policy.initial_rebalance_delay_ms
        self.replies += group.prepare(self._now_ms, self._request.wall_ms, cause, delay_ms)

    def _try_complete(self, group: ClassicGroup, *, time_is_up: bool = False) -> None:
        """A group that was empty waits out its delay; any other begins when everyone is there."""
        if group.state is not State.PREPARING:
            return
        first = group.generation == 0 or group.protocol is None
        delayed = first and self._policy.initial_rebalance_delay_ms > 0 and group.members
        if not time_is_up and (delayed or not group.everyone_joined):
            return
        self.replies += group.complete_join(self._now_ms, self._request.wall_ms)
        if not group.members:
            self._record(group)

    def _record(self, group: ClassicGroup) -> None:
        self.records.append(GroupRecord(GroupMetadataKey(group.group_id), group.as_record()))

    # Syncing and living

    def sync(self, request: sync_group.SyncGroupRequest) -> None:
        try:
            group = self._existing(request.group_id)
            member = self._find(group, request.member_id, request.group_instance_id)
            self._check_generation(group, request.generation_id)
            self._check_protocol(group, request)
            self._sync(group, member, request)
        except ApiError as problem:
            self._reply(sync_group.SyncGroupResponse(error_code=problem.code))

    def _sync(self, group: ClassicGroup, member: Member, request: sync_group.SyncGroupRequest) -> None:
        if group.state is State.PREPARING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is State.STABLE:
            member.deadline_ms = self._now_ms + member.session_timeout_ms
            self._reply(group.synced(member))
            return
        member.syncing = self._token
        if member.member_id == group.leader:
            assignments = {entry.member_id: entry.assignment for entry in request.assignments}
            self.replies += group.assign(assignments, self._now_ms, self._request.wall_ms)
            self._record(group)

    @staticmethod
    def _check_protocol(group: ClassicGroup, request: sync_group.SyncGroupRequest) -> None:
        for told, ours in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
            if told is not None and ours is not None and told != ours:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def heartbeat(self, request: heartbeat.HeartbeatRequest) -> None:
        code = ErrorCode.NONE
        try:
            group = self._existing(request.group_id)
            member = self._find(group, request.member_id, request.group_instance_id)
            self._check_generation(group, request.generation_id)
            member.deadline_ms = self._now_ms + member.session_timeout_ms
            if group.state is State.PREPARING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        except ApiError as problem:
            code = problem.code
        self._reply(heartbeat.HeartbeatResponse(error_code=code))

    def leave(self, request: leave_group.LeaveGroupRequest) -> None:
        leaving = request.members
        if self._request.version < 3:
            leaving = [leave_group.MemberIdentity(request.member_id)]
        response = leave_group.LeaveGroupResponse()
        group = self._machine.groups.get(request.group_id)
        for identity in leaving:
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave(group, identity)
            response.members.append(leave_group.MemberResponse(identity.member_id, identity.group_instance_id, code))
        if self._request.version < 3:
            response.error_code = response.members[0].error_code
        self._reply(response)

    def _leave(self, group: ClassicGroup, identity: leave_group.MemberIdentity) -> ErrorCode:
        if group.pending.pop(identity.member_id, None) is not None:
            self._try_complete(group)
            return ErrorCode.NONE
        try:
            if identity.group_instance_id is not None and not identity.member_id:
                # An operator names a static member by its instance alone (KIP-345).
                known = group.static_ids.get(identity.group_instance_id)
                if known is None:
                    raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
                member = group.members[known]
            else:
                member = self._find(group, identity.member_id, identity.group_instance_id)
        except ApiError as problem:
            return problem.code
        self._remove(group, member, f"{_who(member)} left{_because(identity.reason)}")
        return ErrorCode.NONE

    def _remove(self, group: ClassicGroup, member: Member, cause: str) -> None:
        self.replies += classic.dismissed(member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member.member_id)
        if group.state in (State.STABLE, State.COMPLETING):
            self._prepare(group, cause)
        self._try_complete(group)

    def expire(self, group: ClassicGroup) -> None:
        """Whose time is up: sessions, ids never joined with, and the phases of a rebalance."""
        now_ms = self._now_ms
        for member_id in [each for each, deadline_ms in group.pending.items() if deadline_ms <= now_ms]:
            del group.pending[member_id]
        for member in [m for m in group.members.values() if not m.waits and m.deadline_ms <= now_ms]:
            if member.member_id in group.members:
                self._remove(group, member, f"{_who(member)} was not heard of for {member.session_timeout_ms} ms")
        if group.state is State.PREPARING and group.phase_deadline_ms <= now_ms:
            self._try_complete(group, time_is_up=True)
        elif group.state is State.COMPLETING and group.phase_deadline_ms <= now_ms:
            for member in [m for m in group.members.values() if m.syncing is None]:
                self._remove(group, member, f"{_who(member)} did not sync in time")
            if group.state is State.COMPLETING:
                self._prepare(group, "the leader did not assign in time")


def _rebalance_timeout(request: join_group.JoinGroupRequest) -> int:
    """Version 0 has none of its own."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _who(member: Member) -> str:
    return f"static member {member.instance_id}" if member.instance_id else f"member {member.member_id}"


def _because(reason: str | None) -> str:
    return f" ({reason[:200]})" if reason else ""
