"""Decisions about JoinGroup."""

from __future__ import annotations

from barnabas.core.group import classic
from barnabas.core.group.classic import ClassicGroup, Member, State
from barnabas.core.group.rebalancing import RebalancingTurn, because, who
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_IDS_FROM_VERSION = 4
"""KIP-394: from here on a member is given its id first, and joins with it."""
SKIPPED_ASSIGNMENT_FROM_VERSION = 9
"""KIP-814."""


class JoiningTurn(RebalancingTurn):
    def join(self, request: JoinGroupRequest) -> None:
        try:
            self._join(request)
        except ApiError as problem:
            member_id = "" if problem.code is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
            self._reply(JoinGroupResponse(error_code=problem.code, member_id=member_id))

    def _join(self, request: JoinGroupRequest) -> None:
        group = self._group(request)
        self._check_room(group, request)
        if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._machine.groups[group.group_id] = group
        if not request.member_id:
            self._join_new(group, request)
        elif request.member_id in group.pending and request.group_instance_id is None:
            self._add(group, request.member_id, request)
        else:
            self._join_known(group, request)

    def _group(self, request: JoinGroupRequest) -> ClassicGroup:
        policy = self._policy
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if not policy.min_session_timeout_ms <= request.session_timeout_ms <= policy.max_session_timeout_ms:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if request.member_id:
            return self._existing(request.group_id)
        return self._machine.groups.get(request.group_id) or ClassicGroup(request.group_id)

    def _check_room(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        """In the join phase only rejoined members count: if max.size was lowered, the last to rejoin are refused."""
        member = group.members.get(request.member_id)
        most = self._policy.max_size
        if group.state is State.PREPARING:
            accepted = (member is not None and member.joining is not None) or group.joining_count < most
        else:
            accepted = member is not None or len(group.members) < most
        if accepted or group.state is State.EMPTY or _replaces(group, request):
            return
        group.pending.pop(request.member_id, None)
        if member is not None:
            self._remove(group, [member], f"{who(member)} has no room in the group")
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _join_new(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        stem = self._request.client_id if request.group_instance_id is None else request.group_instance_id
        member_id = f"{stem}-{self._new_uuid()}"
        if _replaces(group, request):
            self._rejoin_static(group, member_id, request)
        elif request.group_instance_id is None and self._request.version >= MEMBER_IDS_FROM_VERSION:
            group.pending[member_id] = self._now_ms + request.session_timeout_ms
            self._reply(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        else:
            self._add(group, member_id, request)

    def _new_uuid(self) -> str:
        digits = self._machine.random.randbytes(16).hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _join_known(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        """Repeats the response if nothing changed; a change, or the leader of a stable group, starts a rebalance."""
        member = self._find(group, request.member_id, request.group_instance_id)
        unchanged = member.prefers(classic.protocols_of(request))
        leads_settled = group.state is State.STABLE and group.leader == member.member_id
        if group.state in (State.COMPLETING, State.STABLE) and unchanged and not leads_settled:
            member.deadline_ms = self._now_ms + member.session_timeout_ms
            self._reply(group.joined(member))
            return
        why = "rejoined as leader" if unchanged else "changed its subscription"
        self._update(member, request)
        self._wait_to_join(group, member, f"{who(member)} {why}{because(request.reason)}")

    def _add(self, group: ClassicGroup, member_id: str, request: JoinGroupRequest) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=self._request.client_id,
            client_host=self._request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout(request),
            protocols=classic.protocols_of(request),
            is_new=True,
            deadline_ms=self._now_ms + self._policy.new_member_join_timeout_ms,
        )
        group.has_grown = True
        group.add(member, request.protocol_type)
        self._record_id(group, member)
        self._wait_to_join(group, member, f"{who(member)} joined{because(request.reason)}")

    @staticmethod
    def _update(member: Member, request: JoinGroupRequest) -> None:
        member.protocols = classic.protocols_of(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout(request)

    def _rejoin_static(self, group: ClassicGroup, member_id: str, request: JoinGroupRequest) -> None:
        """A restarted static member takes its place again; in a stable group without a rebalance (KIP-345, KIP-814)."""
        old_leader = group.leader
        member, replies = group.replace_static(request.group_instance_id or "", member_id)
        self.replies += replies
        self._update(member, request)
        member.client_id, member.client_host = self._request.client_id, self._request.client_host
        member.deadline_ms = self._now_ms + member.session_timeout_ms
        if group.state is not State.STABLE or group.select_protocol() != group.protocol:
            self._record_id(group, member)
            self._wait_to_join(group, member, f"{who(member)} restarted{because(request.reason)}")
            return
        self._record(group)
        if self._request.version >= SKIPPED_ASSIGNMENT_FROM_VERSION:
            self._reply(group.joined(member, skip_assignment=group.leader == member_id))
        else:
            # An older client that is the leader would assign; the former leader id in the response prevents that.
            response = group.joined(member, leader=old_leader)
            response.members = []
            self._reply(response)

    def _wait_to_join(self, group: ClassicGroup, member: Member, cause: str) -> None:
        if member.joining is not None:
            # A repeated request: the earlier one is answered, though its client is probably gone.
            self.replies += classic.dismissed(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.joining = self._token
        if group.state is State.PREPARING and not member.is_new:
            self._try_complete(group)  # it rejoins as expected
        else:
            self._rebalance(group, cause)


def _replaces(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Whether a static member returns without a member id: it takes its old place and does not count twice."""
    return not request.member_id and request.group_instance_id in group.static_ids


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    """Version 0 has none of its own."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
