"""The shared state of the quorum's roles, and the transitions between them.

Messages are held back while the vote is not on the disk: ``emit`` queues what other nodes or this node's leadership
could depend on, and ``vote_persisted`` releases it. A later vote replaces one that waits to be written; what was held
for the earlier one stays true, since the later one is of a higher epoch or says more about the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from barnabas.core.raft.events import (
    NO_VOTE,
    AppendControl,
    Effect,
    LeaderKnown,
    LeadershipBegins,
    LeadershipEnds,
    LogView,
    Park,
    PersistVote,
    Reply,
    ReplyRecords,
    ReplySnapshot,
    Send,
    Vote,
)
from barnabas.core.raft.messages import Leader, change_outcome
from barnabas.core.raft.roles import Candidate, Follower, Leading, Prospective, Resigned, Role, RoleState, Unattached
from barnabas.core.raft.settings import QuorumSettings
from barnabas.core.raft.voters import Endpoints, Voter, VoterHistory, VoterSet, address_in
from barnabas.model.errors import ErrorCode, invariant
from barnabas.model.ids import ZERO_UUID
from barnabas.model.ports import Address, Random
from barnabas.wire.schema import Message

HELD_BACK = (Send, Reply, ReplyRecords, ReplySnapshot, Park, AppendControl, LeadershipBegins)


class Identity(Struct, frozen=True, kw_only=True):
    """Who this node is."""

    me: Voter
    cluster_id: str
    endpoints: Endpoints
    can_vote: bool = True
    """It has the controller role: it may vote, and may be made a voter."""
    bootstrap: tuple[Address, ...] = ()


class Quorum:
    def __init__(self, identity: Identity, log: LogView, settings: QuorumSettings, random: Random) -> None:
        self.identity = identity
        self.me = identity.me
        self.log = log
        self.settings = settings
        self.random = random
        self.now_ms = 0
        self.state: RoleState = Unattached(deadline_ms=None)
        self.raft_epoch = 0
        self.leader_id = -1
        self.leader_address: Address | None = None
        self.voted: Voter | None = None
        """In this epoch, while no leader is known. A node that knows the leader grants no vote in its epoch."""
        self.history = VoterHistory()
        self.high_watermark = -1
        """-1 until it is known; never goes back."""
        self.synced_offset = 0
        self.leader_failures = 0
        """Fetches in a row that the leader's machine refused or cut."""
        self.last_leader: tuple[int, int] | None = None
        """(node, monotonic time) of the last leader that has answered a fetch of this node."""
        self.effects: list[Effect] = []
        self._held: list[Effect] = []
        self._stored = NO_VOTE
        self._writing: Vote | None = None

    # What it is

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def voters(self) -> VoterSet:
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        return self.identity.can_vote and self.voters.contains(self.me)

    @property
    def may_stand(self) -> bool:
        """A voter, or one that the latest set leaves out and whose removal is not known to be committed.

        Such a node may be the only one that has the record of its removal beside voters whose logs are shorter: they
        get no vote of it, and it has to be elected to commit the record (Raft dissertation, section 4.2.2).
        """
        if self.is_voter:
            return True
        is_pending = self.history.latest_offset >= self.high_watermark
        return is_pending and self.identity.can_vote and self.history.previous.contains(self.me)

    @property
    def is_only_voter(self) -> bool:
        return self.is_voter and len(self.voters) == 1

    @property
    def is_vote_stored(self) -> bool:
        return self._writing is None

    @property
    def leader(self) -> Leader:
        """What other nodes are told. One that has resigned is no leader that could be fetched from."""
        return Leader(self.leader_id, self.raft_epoch, self.leader_address)

    def address_of(self, node_id: int) -> Address | None:
        if node_id == self.me.node_id:
            return address_in(self.identity.endpoints, self.settings.listener)
        return self.voters.address_of(node_id, self.settings.listener)

    # Effects

    def emit(self, effect: Effect) -> None:
        if self._writing is not None and isinstance(effect, HELD_BACK):
            self._held.append(effect)
        else:
            self.effects.append(effect)

    def reply(self, token: object, response: Message) -> None:
        self.emit(Reply(token, response))

    def send(self, node_id: int, address: Address, lane: str, request: Message) -> None:
        self.emit(Send(node_id, address, lane, request, self.settings.request_timeout_ms))

    def restore(self, vote: Vote) -> None:
        self._stored = vote
        self.raft_epoch, self.leader_id, self.voted = vote.raft_epoch, vote.leader_id, vote.voted

    def persist(self) -> None:
        wanted = self._wanted()
        if self._writing is None and wanted != self._stored:
            self._writing = wanted
            self.effects.append(PersistVote(wanted))

    def _wanted(self) -> Vote:
        """A node that knows the leader has no vote to remember beside its epoch; Kafka writes it so."""
        if self.leader_id >= 0 or self.voted is None:
            return Vote(self.raft_epoch, self.leader_id, -1, ZERO_UUID)
        return Vote(self.raft_epoch, -1, self.voted.node_id, self.voted.directory_id)

    def vote_persisted(self) -> None:
        invariant(self._writing is not None, "a vote persisted out of turn")
        self._stored, self._writing = self._writing or NO_VOTE, None
        self.persist()
        if self._writing is None:
            held, self._held = self._held, []
            self.effects += held

    # Time

    def random_election_timeout_ms(self) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self.random.randrange(0, timeout_ms)

    def backoff_ms(self, attempts: int) -> int:
        """Random and growing, so that two candidates do not meet again and again."""
        limit_ms = min(self.settings.election_backoff_max_ms, self.settings.retry_backoff_ms << min(attempts, 16))
        return self.random.randrange(0, max(limit_ms, 1))

    # Transitions

    def to_unattached(self, raft_epoch: int, voted: Voter | None = None) -> None:
        """A higher epoch whose leader is not known, or a vote in one."""
        invariant(raft_epoch >= self.raft_epoch, "an epoch never goes back")
        if raft_epoch > self.raft_epoch:
            self._leave(raft_epoch)
        self.voted = voted
        self.state = Unattached(deadline_ms=self._election_deadline(), probe_at_ms=self.now_ms)
        self.persist()

    def to_follower(self, leader: Leader) -> None:
        """``leader`` has an address, and is of this epoch or a higher one."""
        invariant(leader.raft_epoch >= self.raft_epoch, "an epoch never goes back")
        invariant(leader.leader_id != self.me.node_id, "a node does not follow itself")
        is_new = leader.raft_epoch > self.raft_epoch or self.leader_id != leader.leader_id
        if leader.raft_epoch > self.raft_epoch:
            self._leave(leader.raft_epoch)
        self._end_leading()
        self.leader_id, self.leader_address, self.voted = leader.leader_id, leader.address, None
        self.state = Follower(
            fetch_deadline_ms=self.now_ms + self.settings.fetch_timeout_ms,
            fetch_at_ms=self.now_ms,
            update_at_ms=self.now_ms + self.settings.update_voter_interval_ms,
        )
        self.persist()
        if is_new:
            self.leader_failures = 0
            self.emit(LeaderKnown(self.leader_id, self.raft_epoch))

    def to_prospective(self) -> None:
        """Asks whether an election would be won before it disturbs the epoch (KIP-996)."""
        if self.is_only_voter:
            self.to_candidate(attempts=1)
            return
        attempts = self.state.attempts if isinstance(self.state, Candidate | Prospective) else 0
        self.state = Prospective.of(self.voters, self.me, self.now_ms, attempts=attempts)
        self.state.deadline_ms = self.now_ms + self.random_election_timeout_ms()

    def to_candidate(self, attempts: int) -> None:
        invariant(self.may_stand, "only voters stand for election")
        invariant(not isinstance(self.state, Leading), "a leader does not stand for election")
        self._leave(self.raft_epoch + 1)
        self.voted = self.me
        self.state = Candidate.of(self.voters, self.me, self.now_ms, attempts=attempts)
        self.state.deadline_ms = self.now_ms + self.random_election_timeout_ms()
        self.persist()

    def to_leader(self, granting: Sequence[Voter]) -> None:
        invariant(self.is_vote_stored, "a vote is durable before leadership begins")
        self.leader_id, self.voted = self.me.node_id, None
        self.leader_address = self.address_of(self.me.node_id)
        self.state = Leading(
            epoch_start_offset=self.log.log_end_offset,
            granting=tuple(granting),
            check_quorum_ms=self.now_ms + self.settings.check_quorum_timeout_ms,
            begin_quorum_ms=self.now_ms,
        )
        self.persist()
        self.emit(LeaderKnown(self.leader_id, self.raft_epoch))

    def to_resigned(self, successors: Sequence[Voter]) -> None:
        invariant(isinstance(self.state, Leading), "only a leader resigns")
        self._end_leading()
        others = [node.voter for node in self.voters.others(self.me)]
        self.leader_address = None
        self.state = Resigned(
            deadline_ms=self.now_ms + self.random_election_timeout_ms(),
            successors=tuple(successors),
            due_ms={voter.node_id: self.now_ms for voter in others},
        )
        self.emit(LeaderKnown(-1, self.raft_epoch))

    def _leave(self, raft_epoch: int) -> None:
        """For a higher epoch, of which nothing is known yet."""
        self._end_leading()
        was_known = self.leader_id >= 0 and not isinstance(self.state, Resigned)
        self.raft_epoch, self.leader_id, self.leader_address, self.voted = raft_epoch, -1, None, None
        if was_known:
            self.emit(LeaderKnown(-1, raft_epoch))

    def _end_leading(self) -> None:
        if not isinstance(self.state, Leading):
            return
        change, self.state.change = self.state.change, None
        if change is not None and change.token is not None:
            self.reply(change.token, change_outcome(change.kind, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.effects.append(LeadershipEnds(self.raft_epoch))

    def _election_deadline(self) -> int | None:
        return self.now_ms + self.random_election_timeout_ms() if self.may_stand else None

    # What others say about the leader

    def observe(self, leader: Leader, endpoints: Iterable[tuple[str, str, int]] = ()) -> None:
        """Follows what a request or a response says about epoch and leader, where it is news."""
        if leader.raft_epoch < self.raft_epoch:
            return
        address = address_in(endpoints, self.settings.listener) or leader.address or self.address_of(leader.leader_id)
        is_other = leader.leader_id >= 0 and leader.leader_id != self.me.node_id
        if is_other and address is not None:
            is_known = self.leader_id >= 0 and leader.raft_epoch == self.raft_epoch
            if not is_known or (self.leader_id == leader.leader_id and self._has_lost_leader(address)):
                self.to_follower(Leader(leader.leader_id, leader.raft_epoch, address))
        elif leader.raft_epoch > self.raft_epoch:
            self.to_unattached(leader.raft_epoch)

    def _has_lost_leader(self, address: Address) -> bool:
        """The same leader at another address, or one that was known without an address."""
        return self.leader_address != address and not isinstance(self.state, Leading | Resigned)
