"""One classic group: the members agree on a protocol, and one of them, the leader, assigns.

    EMPTY --join--> PREPARING --everyone (re)joined, or time is up--> COMPLETING --the leader syncs--> STABLE
      ^                 ^  \\                                             |                              |
      |                 |   +--nobody is left--> EMPTY                   |                              |
      |                 +---- someone joins, leaves, times out, or changes its subscription -------------+
      +-- the last member leaves (by way of PREPARING)

A member that joins or rejoins waits (its token is kept) until the join phase ends; one that syncs waits for the
leader's assignment. In PREPARING heartbeats are answered with REBALANCE_IN_PROGRESS, so that members rejoin. The
generation increases with every completed join phase. Static members (KIP-345) keep their place by instance id when they
return with a new member id, and are removed only when their session times out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from msgspec.structs import replace

from barnabas.model.errors import ErrorCode
from barnabas.wire.api.heartbeat import HeartbeatResponse
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.api.sync_group import SyncGroupResponse
from barnabas.wire.schema import Message
from barnabas.wire.stored.classic_group import GroupMetadataValue, MemberMetadata

Reply = tuple[object, Message]
NO_GENERATION = -1
REMEMBERED_REBALANCES = 10
LONGEST_CAUSE = 1000
RELEASE_INTERVAL_MS = 250


class State(Enum):
    """Values are the names that DescribeGroups tells."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Rebalance(NamedTuple):
    """One remembered rebalance."""

    timestamp_ms: int
    generation: int
    """The generation that it ended in; -1 while it goes on."""
    cause: str
    member_count: int


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    """Name -> subscription, in the member's order of preference."""
    assignment: bytes = b""
    joining: object | None = None
    """The token of its JoinGroup while it waits for the join phase to end."""
    syncing: object | None = None
    """The token of its SyncGroup while it waits for the leader's."""
    beating: object | None = None
    """The token of its delayed Heartbeat: answered when the group rebalances or the delay ends."""
    held_until_ms: int = 0
    """When the delay ends, of its Heartbeat or of a SyncGroup that is delayed in a stable group."""
    may_wait: bool = False
    """Its last SyncGroup came from a client whose responses may be delayed."""
    owes_sync: bool = False
    """It got a JoinGroup response and has not sent its SyncGroup."""
    is_new: bool = False
    """It has had no JoinGroup response yet, and so cannot send heartbeats."""
    deadline_ms: int = 0
    """When its session times out. Ignored while its request is parked, unless the member is new: the client may be
    gone, and the member would stay for ever."""

    @property
    def may_expire(self) -> bool:
        return self.is_new or (self.joining is None and self.syncing is None)

    def prefers(self, protocols: dict[str, bytes]) -> bool:
        """Whether these are its protocols, in its order."""
        return list(self.protocols.items()) == list(protocols.items())


@dataclass(slots=True)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids handed out and not yet joined with -> when they lapse."""
    state_since_ms: int = 0
    """Wall clock; expiry of offsets counts from when the group became empty."""
    phase_deadline_ms: int = 0
    """Monotonic: when the join phase (PREPARING) ends, or when members that did not send SyncGroup are removed."""
    is_initial: bool = False
    """In PREPARING: the group was empty before, and waits for more members (group.initial.rebalance.delay.ms)."""
    is_moving: bool = False
    """A member must revoke partitions before another gets them: the next rebalance follows at once (KIP-429)."""
    has_grown: bool = False
    """A member joined during the initial delay, which extends it."""
    delay_left_ms: int = 0
    """By how much the initial delay can grow yet."""
    quiet_until_ms: int = 0
    """No deadline of the group is earlier. Heartbeats and commits move deadlines away only."""
    rebalances: deque[Rebalance] = field(default_factory=lambda: deque(maxlen=REMEMBERED_REBALANCES))
    recorded: GroupMetadataValue | None = None
    """What the log holds of the group: what a restart makes of it."""

    # Looking

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """Whether a member with these protocols can be in the group: same type, and one that all others have."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        return any(all(name in member.protocols for member in self.members.values()) for name in names)

    def select_protocol(self) -> str:
        """The one most members prefer among those that all have."""
        candidates = [
            name
            for name in next(iter(self.members.values())).protocols
            if all(name in member.protocols for member in self.members.values())
        ]
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[next(name for name in member.protocols if name in votes)] += 1
        return max(candidates, key=lambda name: votes[name])

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def everyone_joined(self) -> bool:
        return all(member.joining is not None for member in self.members.values())

    @property
    def joining_count(self) -> int:
        return sum(member.joining is not None for member in self.members.values())

    @property
    def is_live(self) -> bool:
        """Whether the group has deadlines."""
        return bool(self.members or self.pending)

    def next_deadline_ms(self) -> int:
        members = self.members.values()
        deadlines = [*self.pending.values(), *(member.deadline_ms for member in members if member.may_expire)]
        deadlines += [release_ms(member.held_until_ms) for member in members if self.is_held(member)]
        if self.state is State.PREPARING or any(member.owes_sync for member in members):
            deadlines.append(self.phase_deadline_ms)
        return min(deadlines, default=0)

    def is_held(self, member: Member) -> bool:
        return member.beating is not None or (member.syncing is not None and self.state is State.STABLE)

    def as_record(self) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols.get(self.protocol or "", b""),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def recorded_as(self, member: Member) -> GroupMetadataValue | None:
        """What the log holds, with the member's id for that of its instance; None where nothing is to be changed."""
        value = self.recorded
        if value is None or member.instance_id is None:
            return None
        for stored in value.members:
            if stored.group_instance_id == member.instance_id and stored.member_id != member.member_id:
                renamed = replace(stored, member_id=member.member_id)
                return replace(
                    value,
                    leader=member.member_id if value.leader == stored.member_id else value.leader,
                    members=[renamed if each is stored else each for each in value.members],
                )
        return None

    # Changing

    def enter(self, state: State, wall_ms: int) -> None:
        self.state = state
        self.state_since_ms = wall_ms

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> tuple[Member, list[Reply]]:
        """Gives a returning static member a new id; requests parked under the old id are fenced."""
        old_id = self.static_ids[instance_id]
        member = self.members.pop(old_id)
        replies = dismissed(member, ErrorCode.FENCED_INSTANCE_ID)
        member.member_id = new_id
        member.is_new = member.owes_sync = False
        self.members[new_id] = member
        self.static_ids[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member, replies

    # The phases

    def prepare(self, now_ms: int, wall_ms: int, cause: str, delay_ms: int) -> list[Reply]:
        """Begins a join phase. ``delay_ms`` is how long a group that was empty waits for more members."""
        replies = self._unsettle(now_ms)
        timeout_ms = self.rebalance_timeout_ms
        self.is_initial, self.has_grown, self.is_moving = self.state is State.EMPTY, False, False
        self.delay_left_ms = max(timeout_ms - delay_ms, 0)
        self.phase_deadline_ms = now_ms + (delay_ms if self.is_initial else timeout_ms)
        self.enter(State.PREPARING, wall_ms)
        self.rebalances.append(Rebalance(wall_ms, NO_GENERATION, cause, len(self.members)))
        return replies

    def _unsettle(self, now_ms: int) -> list[Reply]:
        """Discards the pending assignment. Members that waited for it get a new session deadline."""
        replies: list[Reply] = []
        for member in self.members.values():
            member.owes_sync = False
            if self.state is State.COMPLETING:
                member.assignment = b""
            replies += answered_beat(member, ErrorCode.REBALANCE_IN_PROGRESS)
            if member.syncing is not None:
                replies.append((member.syncing, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
                member.syncing = None
                member.deadline_ms = now_ms + member.session_timeout_ms
        return replies

    def extend_delay(self, now_ms: int, delay_ms: int) -> bool:
        """Extends the initial delay if a member joined meanwhile, up to the rebalance timeout."""
        if not (self.is_initial and self.has_grown and self.delay_left_ms):
            return False
        step_ms = min(delay_ms, self.delay_left_ms)
        self.has_grown = False
        self.delay_left_ms -= step_ms
        self.phase_deadline_ms = now_ms + step_ms
        return True

    def complete_join(self, now_ms: int, wall_ms: int) -> list[Reply]:
        """Ends the join phase: removes members that did not rejoin, unless they are static."""
        missing = [m for m in self.members.values() if m.joining is None and m.instance_id is None]
        for member in missing:
            self.remove(member.member_id)
        if self.members and not self._elect():
            # Only static members are left and none came: we wait until one does or their sessions end.
            self.phase_deadline_ms = now_ms + self.rebalance_timeout_ms
            return []
        self.generation += 1
        self._note_outcome(len(missing))
        if not self.members:
            self.protocol = self.leader = None
            self.enter(State.EMPTY, wall_ms)
            return []
        self.protocol = self.select_protocol()
        self.enter(State.COMPLETING, wall_ms)
        self.phase_deadline_ms = now_ms + self.rebalance_timeout_ms
        return self._tell_joined(now_ms)

    def _elect(self) -> bool:
        """Keeps the leader if it has joined, or chooses the first member that has. False if none has."""
        if self.leader not in self.members or self.members[self.leader].joining is None:
            joined = (member.member_id for member in self.members.values() if member.joining is not None)
            self.leader = next(joined, self.leader)
        return self.leader is not None and self.members[self.leader].joining is not None

    def _tell_joined(self, now_ms: int) -> list[Reply]:
        replies: list[Reply] = []
        for member in self.members.values():
            if member.joining is not None:
                replies.append((member.joining, self.joined(member)))
                member.joining = None
            member.is_new, member.owes_sync = False, True
            member.deadline_ms = now_ms + member.session_timeout_ms
        return replies

    def note(self, cause: str) -> None:
        """Adds a cause to the current rebalance."""
        if self.rebalances and self.rebalances[-1].generation == NO_GENERATION:
            begun = self.rebalances.pop()
            longer = f"{begun.cause}; {cause}"
            self.rebalances.append(begun._replace(cause=longer if len(longer) <= LONGEST_CAUSE else begun.cause))

    def _note_outcome(self, missing: int) -> None:
        if self.rebalances and self.rebalances[-1].generation == NO_GENERATION:
            begun = self.rebalances.pop()
            cause = f"{begun.cause}; {missing} did not rejoin in time" if missing else begun.cause
            self.rebalances.append(Rebalance(begun.timestamp_ms, self.generation, cause, len(self.members)))

    def joined(self, member: Member, *, skip_assignment: bool = False, leader: str | None = None) -> JoinGroupResponse:
        """The JoinGroup response of a member; the leader's has the subscriptions of all members."""
        leads = member.member_id == self.leader
        protocol = self.protocol or ""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=protocol,
            leader=leader or self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(each.member_id, each.instance_id, each.protocols.get(protocol, b""))
                for each in self.members.values()
            ]
            if leads
            else [],
        )

    def assign(self, assignments: dict[str, bytes], wall_ms: int) -> None:
        """The leader has assigned."""
        self.enter(State.STABLE, wall_ms)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")

    def answer_sync(self, member: Member, now_ms: int) -> list[Reply]:
        token, member.syncing = member.syncing, None
        member.deadline_ms = now_ms + member.session_timeout_ms
        return [] if token is None else [(token, self.synced(member))]

    def synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )


def dismissed(member: Member, code: ErrorCode) -> list[Reply]:
    """Answers for what a member that goes was waiting for."""
    replies = answered_beat(member, code)
    if member.joining is not None:
        replies.append((member.joining, JoinGroupResponse(error_code=code, member_id=member.member_id)))
        member.joining = None
    if member.syncing is not None:
        replies.append((member.syncing, SyncGroupResponse(error_code=code)))
        member.syncing = None
    return replies


def release_ms(held_until_ms: int) -> int:
    """When a delayed request is answered: rounded up, so that many are handled together."""
    return held_until_ms + -held_until_ms % RELEASE_INTERVAL_MS


def answered_beat(member: Member, code: ErrorCode = ErrorCode.NONE) -> list[Reply]:
    """Answers a delayed heartbeat."""
    token, member.beating = member.beating, None
    return [] if token is None else [(token, HeartbeatResponse(error_code=code))]


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    return {protocol.name: protocol.metadata for protocol in request.protocols}


def from_record(group_id: str, value: GroupMetadataValue, now_ms: int) -> ClassicGroup:
    """The group as its log knows it: its members have a full session to be heard of."""
    group = ClassicGroup(
        group_id,
        state=State.STABLE if value.members else State.EMPTY,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        generation=value.generation,
        leader=value.leader,
        state_since_ms=value.current_state_timestamp,
        recorded=value,
    )
    for stored in value.members:
        timeout_ms = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
        member = Member(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=timeout_ms,
            protocols={value.protocol or "": stored.subscription},
            assignment=stored.assignment,
            deadline_ms=now_ms + stored.session_timeout,
        )
        group.members[member.member_id] = member
        if member.instance_id is not None:
            group.static_ids[member.instance_id] = member.member_id
    return group
