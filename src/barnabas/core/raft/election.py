"""Elections: whom this node grants its vote, and how it stands itself (KIP-595, KIP-996).

A pre-vote asks whether an election would be won. It changes nothing at the voter, which refuses it while it hears from
a leader; so a node that is cut off, or late after a restart, does not take the leader's epoch away.
"""

from __future__ import annotations

from barnabas.core.raft import messages
from barnabas.core.raft.events import VOTE_LANE, Received, Responded
from barnabas.core.raft.messages import Leader
from barnabas.core.raft.quorum import Quorum
from barnabas.core.raft.roles import Candidate, Follower, Leading, Prospective, Resigned, Unattached
from barnabas.core.raft.voters import Voter
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.wire.api.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.wire.api.vote import VoteRequest, VoteRequestPartitionData

RETRY_MS = 50


class Election:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Requests of other nodes

    def on_vote(self, event: Received, request: VoteRequest) -> None:
        asked = messages.partition_of(request)
        code = self._vote_error(asked)
        if code is ErrorCode.NONE:
            if asked.replica_epoch > self._quorum.raft_epoch:
                self._quorum.to_unattached(asked.replica_epoch)
            if not self.is_for_us(request.voter_id, asked.voter_directory_id):
                code = ErrorCode.INVALID_VOTER_KEY
        granted = code is ErrorCode.NONE and self._judge(asked)
        self._quorum.reply(event.token, messages.vote_response(self._quorum.leader, code, granted=granted))

    def _vote_error(self, asked: VoteRequestPartitionData) -> ErrorCode:
        last_allowed = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
        if asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.last_offset_epoch > last_allowed:
            return ErrorCode.INVALID_REQUEST
        return self.voter_error(asked.replica_id, asked.replica_epoch)

    def voter_error(self, node_id: int, raft_epoch: int) -> ErrorCode:
        if raft_epoch < self._quorum.raft_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else ErrorCode.NONE

    def is_for_us(self, voter_id: int, directory_id: bytes) -> bool:
        """Version 0 of the requests names no voter."""
        return voter_id < 0 or self._quorum.me.matches(voter_id, directory_id)

    def _judge(self, asked: VoteRequestPartitionData) -> bool:
        """A candidate outside our voter set is judged like any other: our set may be behind."""
        quorum = self._quorum
        candidate = Voter(asked.replica_id, asked.replica_directory_id)
        log = quorum.log
        is_up_to_date = (asked.last_offset_epoch, asked.last_offset) >= (log.latest_epoch, log.log_end_offset)
        if asked.pre_vote:
            return is_up_to_date and self._would_elect()
        if not quorum.identity.can_vote or not isinstance(quorum.state, Unattached | Prospective):
            return False
        if quorum.voted is not None:
            return quorum.voted == candidate
        if quorum.leader_id >= 0 or not is_up_to_date:
            return False
        quorum.to_unattached(quorum.raft_epoch, voted=candidate)
        return True

    def _would_elect(self) -> bool:
        """Not while a leader is heard from."""
        state = self._quorum.state
        if isinstance(state, Follower):
            return not state.has_fetched
        return not isinstance(state, Leading)

    def on_begin_quorum_epoch(self, event: Received, request: BeginQuorumEpochRequest) -> None:
        named = messages.partition_of(request)
        code = self.voter_error(named.leader_id, named.leader_epoch)
        if code is ErrorCode.NONE:
            endpoints = [(each.name, each.host, each.port) for each in request.leader_endpoints]
            self._quorum.observe(Leader(named.leader_id, named.leader_epoch), endpoints)
            if isinstance(self._quorum.state, Prospective) and self._quorum.leader_id == named.leader_id:
                self._give_up()  # the leader is there after all
            if not self.is_for_us(request.voter_id, named.voter_directory_id):
                code = ErrorCode.INVALID_VOTER_KEY
        self._quorum.reply(event.token, messages.begin_response(self._quorum.leader, code))

    def on_end_quorum_epoch(self, event: Received, request: EndQuorumEpochRequest) -> None:
        """The leader has resigned: the voter that is furthest stands at once, the others after a while."""
        quorum = self._quorum
        named = messages.partition_of(request)
        code = self.voter_error(named.leader_id, named.leader_epoch)
        if code is ErrorCode.NONE:
            endpoints = [(each.name, each.host, each.port) for each in request.leader_endpoints]
            quorum.observe(Leader(named.leader_id, named.leader_epoch), endpoints)
            state = quorum.state
            if isinstance(state, Follower) and quorum.leader_id == named.leader_id:
                successors = [(each.candidate_id, each.candidate_directory_id) for each in named.preferred_candidates]
                state.has_fetched = False
                state.fetch_deadline_ms = quorum.now_ms + self._wait_ms(successors)
        quorum.reply(event.token, messages.end_response(quorum.leader, code))

    def _wait_ms(self, successors: list[tuple[int, bytes]]) -> int:
        limit_ms = self._quorum.settings.election_backoff_max_ms
        for position, (node_id, directory_id) in enumerate(successors):
            if self._quorum.me.matches(node_id, directory_id):
                return min(limit_ms, (limit_ms >> (len(successors) - 1)) << (position - 1)) if position else 0
        return limit_ms

    # Standing

    def on_vote_response(self, event: Responded, request: VoteRequest) -> None:
        quorum, asked = self._quorum, request.topics[0].partitions[0]
        state = quorum.state
        is_current = isinstance(state, Prospective if asked.pre_vote else Candidate)
        # An earlier pre-vote of this epoch may have asked a node that is no voter any more: it does not count.
        is_asked = is_current and event.node_id in state.due_ms  # type: ignore[union-attr]
        if not is_asked or asked.replica_epoch != quorum.raft_epoch:
            if event.error is None:
                quorum.observe(messages.read_answer(event.response).leader)
            return
        if event.error is not None:
            self._not_answered(event, state)  # type: ignore[arg-type]
            return
        answer = messages.read_answer(event.response)
        quorum.observe(answer.leader)
        if quorum.state is not state or answer.leader.raft_epoch < quorum.raft_epoch:
            return
        is_granted = None
        if answer.partition is not None and not answer.error_code:
            is_granted = answer.partition.vote_granted
        self._count(event.node_id, state, is_granted)  # type: ignore[arg-type]

    def _count(self, node_id: int, state: Prospective | Candidate, is_granted: bool | None) -> None:
        """A pre-vote that is refused is asked for again: the voter may lose the leader a moment later than we did."""
        state.unreachable.discard(node_id)
        if is_granted:
            state.granted.add(node_id)
            state.rejected.discard(node_id)
        elif is_granted is not None:
            state.rejected.add(node_id)
        if is_granted is None or (not is_granted and isinstance(state, Prospective)):
            state.due_ms[node_id] = self._retry_ms()

    def _not_answered(self, event: Responded, state: Prospective | Candidate) -> None:
        if event.error is not None and event.error.code is ErrorCode.UNSUPPORTED_VERSION:
            state.granted.add(event.node_id)  # it knows no pre-vote, and will judge the vote itself
        else:
            state.unreachable.add(event.node_id)
            state.due_ms[event.node_id] = self._retry_ms()

    def _retry_ms(self) -> int:
        return self._quorum.now_ms + max(self._quorum.settings.retry_backoff_ms, RETRY_MS)

    def advance_prospective(self, state: Prospective) -> None:
        quorum = self._quorum
        if state.is_won:
            quorum.to_candidate(attempts=state.attempts + 1)
        elif state.is_lost or quorum.now_ms >= state.deadline_ms:
            self._give_up()
        else:
            self._ask(state, pre_vote=True)

    def _give_up(self) -> None:
        """Back to the leader that the others still hear from, where one is known."""
        quorum = self._quorum
        if quorum.leader_id >= 0 and quorum.leader_id != quorum.me.node_id and quorum.leader_address is not None:
            quorum.to_follower(quorum.leader)
        else:
            quorum.to_unattached(quorum.raft_epoch, voted=quorum.voted)

    def advance_candidate(self, state: Candidate) -> bool:
        """True where the election is won and the vote for ourselves is durable."""
        quorum = self._quorum
        if state.is_won:
            return quorum.is_vote_stored
        if state.is_backing_off:
            if quorum.now_ms >= state.deadline_ms:
                quorum.to_prospective()
        elif state.is_lost or state.is_hopeless or quorum.now_ms >= state.deadline_ms:
            state.is_backing_off = True
            state.deadline_ms = quorum.now_ms + quorum.backoff_ms(state.attempts)
        else:
            self._ask(state, pre_vote=False)
        return False

    def _ask(self, state: Prospective | Candidate, *, pre_vote: bool) -> None:
        quorum = self._quorum
        for node in state.voters.others(quorum.me):
            due_ms = state.due_ms.get(node.voter.node_id)
            address = quorum.address_of(node.voter.node_id)
            if due_ms is None or due_ms > quorum.now_ms:
                continue
            state.due_ms[node.voter.node_id] = None
            if address is None:
                continue
            request = messages.vote_request(
                quorum.identity.cluster_id,
                quorum.me,
                node.voter,
                raft_epoch=quorum.raft_epoch,
                last_epoch=quorum.log.latest_epoch,
                end_offset=quorum.log.log_end_offset,
                pre_vote=pre_vote,
            )
            quorum.send(node.voter.node_id, address, VOTE_LANE, request)

    # Resigning

    def advance_resigned(self, state: Resigned) -> None:
        quorum = self._quorum
        for voter_id, due_ms in state.due_ms.items():
            address = quorum.address_of(voter_id)
            if due_ms is None or due_ms > quorum.now_ms:
                continue
            state.due_ms[voter_id] = None
            if address is None:
                continue
            request = messages.end_request(
                quorum.identity.cluster_id,
                quorum.me,
                quorum.raft_epoch,
                state.successors,
                quorum.identity.endpoints,
            )
            quorum.send(voter_id, address, VOTE_LANE, request)

    def on_end_response(self, event: Responded, request: EndQuorumEpochRequest) -> None:
        state, named = self._quorum.state, request.topics[0].partitions[0]
        if event.error is None:
            answer = messages.read_answer(event.response)
            self._quorum.observe(answer.leader)
        if self._quorum.state is not state or not isinstance(state, Resigned):
            return
        if named.leader_epoch == self._quorum.raft_epoch and event.node_id in state.due_ms:
            if event.error is None:
                del state.due_ms[event.node_id]
            else:
                state.due_ms[event.node_id] = self._quorum.now_ms + max(
                    self._quorum.settings.retry_backoff_ms, RETRY_MS
                )
