"""The roles of a node in the quorum, each with what it remembers and when it next acts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, ClassVar, Self, TypeAlias

from msgspec import Struct, field

from barnabas.core.raft.events import SnapshotKey
from barnabas.core.raft.voters import Voter, VoterSet
from barnabas.wire.schema import Message


class Role(Enum):
    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    FOLLOWER = "Follower"
    LEADER = "Leader"
    RESIGNED = "Resigned"


def earliest(times_ms: Iterable[int | None]) -> int | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)


class Fetching(Struct):
    """A snapshot on its way to this node."""

    key: SnapshotKey
    position: int | None = None
    """Bytes of it on this node's disk; None until the driver has looked."""
    size: int | None = None


class Unattached(Struct):
    """No leader of this epoch is known. Voters wait for one and then elect; all ask around for it."""

    role: ClassVar[Role] = Role.UNATTACHED
    deadline_ms: int | None
    probe_at_ms: int | None = None
    in_flight: Message | None = None

    @property
    def next_ms(self) -> int | None:
        return earliest((self.deadline_ms, self.probe_at_ms))


class Tally(Struct):
    """An election: who is to be asked, and who has answered."""

    voters: VoterSet
    due_ms: dict[int, int | None]
    """When each other voter is asked; None while its answer is awaited or known."""
    attempts: int
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    """Those whose last request had no answer."""
    deadline_ms: int = 0
    is_backing_off: bool = False

    @classmethod
    def of(cls, voters: VoterSet, me: Voter, now_ms: int, *, attempts: int) -> Self:
        asked: dict[int, int | None] = {node.voter.node_id: now_ms for node in voters.others(me)}
        return cls(voters, asked, attempts, {me.node_id} if voters.contains(me) else set())

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority

    @property
    def is_hopeless(self) -> bool:
        """Lost unless a voter answers that cannot be reached at the moment."""
        return len(self.voters) - len(self.rejected | self.unreachable) < self.voters.majority

    @property
    def next_ms(self) -> int | None:
        return self.deadline_ms if self.is_backing_off else earliest((self.deadline_ms, *self.due_ms.values()))


class Prospective(Tally):
    role: ClassVar[Role] = Role.PROSPECTIVE


class Candidate(Tally):
    role: ClassVar[Role] = Role.CANDIDATE


class Follower(Struct):
    role: ClassVar[Role] = Role.FOLLOWER
    fetch_deadline_ms: int
    fetch_at_ms: int | None
    """When the next fetch is due; None while one is under way."""
    update_at_ms: int
    in_flight: Message | None = None
    has_fetched: bool = False
    """It hears from the leader, and so refuses pre-votes of others."""
    snapshot: Fetching | None = None
    is_updating: bool = False

    @property
    def next_ms(self) -> int | None:
        return earliest((self.fetch_deadline_ms, self.fetch_at_ms, self.update_at_ms))


class ReplicaProgress(Struct):
    """How far a voter or observer is, as its fetches say."""

    replica: Voter
    end_offset: int = -1
    """Synced up to here, for a voter."""
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_offset: int = -1
    """The end of the leader's log at the last fetch."""

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif offset >= self.leader_end_offset >= 0 and self.last_fetch_ms >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = max(self.end_offset, offset)
        self.last_fetch_ms = now_ms
        self.leader_end_offset = leader_end_offset


class VoterChange(Struct):
    """An add, remove or update of a voter that is under way; one at a time."""

    token: object | None
    """None once it is answered."""
    kind: str
    voters: VoterSet | None = None
    """The new set, once it is to be appended."""
    voter: Any = None
    """The node to be added while its versions are asked for."""
    offset: int | None = None
    """Of the VotersRecord, once appended."""
    expires_ms: int = 0
    waits_for_commit: bool = True


class Leading(Struct):
    role: ClassVar[Role] = Role.LEADER
    epoch_start_offset: int
    granting: tuple[Voter, ...]
    check_quorum_ms: int
    begin_quorum_ms: int
    progress: dict[Voter, ReplicaProgress] = field(default_factory=dict)
    """Of all replicas but the leader itself."""
    fetched_since_check: set[int] = field(default_factory=set)
    begin_in_flight: set[int] = field(default_factory=set)
    change: VoterChange | None = None
    has_begun: bool = False
    """A record of this epoch is committed."""
    has_appended: bool = False
    """The leader-change record is in the log."""
    has_other_voters: bool = True

    @property
    def next_ms(self) -> int | None:
        """None for the only voter: it waits for nobody."""
        waits = (self.check_quorum_ms, self.begin_quorum_ms) if self.has_other_voters else ()
        return earliest((*waits, self.change.expires_ms if self.change is not None else None))


class Resigned(Struct):
    """A former leader of this epoch. It grants no vote in it, and tells the voters to elect."""

    role: ClassVar[Role] = Role.RESIGNED
    deadline_ms: int
    successors: tuple[Voter, ...]
    due_ms: dict[int, int | None]
    """Voters that have not acknowledged, and when they are told again; None while they are being told."""

    @property
    def next_ms(self) -> int | None:
        return earliest((self.deadline_ms, *self.due_ms.values()))


RoleState: TypeAlias = Unattached | Prospective | Candidate | Follower | Leading | Resigned
