"""The quorum's rules as a step machine: events in, effects out, no time and no files (KIP-595, KIP-853, KIP-996).

Theory of operation. The nodes of a quorum keep copies of one log. A leader, one per epoch, appends to it; the others
fetch from the leader, as Kafka's followers do. A record is committed once a majority of the voters has synced it. A
node that hears from no leader first asks the voters whether they would elect it (a pre-vote, without a new epoch), then
stands in a new epoch. Observers fetch like followers and neither vote nor count.

                                        Start
                                          |
                                          v       a vote is granted, a higher epoch
        a leader is known            UNATTACHED <--------------------------------- any
      +-----------------------------------+
      |                                   | election time-out
      v         fetch time-out,           v
  FOLLOWER -------------------------> PROSPECTIVE --majority would elect--> CANDIDATE --majority elects--> LEADER
      ^          leader is gone           |                                     |                            |
      +------- leader is still there -----+<------------- lost, backed off -----+          silent majority,  |
      |                                                                                    removed, stopping |
      +-- BeginQuorumEpoch, or a response that names the leader -- any                                       v
                                            UNATTACHED (next epoch) <--- election time-out --- RESIGNED <----+

Rules that all roles share. Epoch and vote are on the disk before anything that depends on them leaves (``quorum``). A
voter fetches only when its log is synced (``follower``). The high watermark moves only onto records of the leader's own
epoch (``leader``). The voters are those of the latest VotersRecord, committed or not (``voters``, ``voter_changes``).
The only voter elects itself at once and waits for nobody: it has no deadline.
"""

from __future__ import annotations

from barnabas.core.raft import messages
from barnabas.core.raft.election import Election
from barnabas.core.raft.events import (
    AppendFailed,
    Effect,
    Event,
    LogAppended,
    LogSynced,
    LogTruncated,
    LogView,
    Received,
    Resign,
    Responded,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotOpened,
    SnapshotWritten,
    Start,
    TimerFired,
    Vote,
    VotePersisted,
)
from barnabas.core.raft.follower import Following
from barnabas.core.raft.leader import Leadership
from barnabas.core.raft.messages import Leader
from barnabas.core.raft.quorum import Identity, Quorum
from barnabas.core.raft.roles import (
    Candidate,
    Follower,
    Leading,
    Prospective,
    ReplicaProgress,
    Resigned,
    Role,
    Unattached,
    earliest,
)
from barnabas.core.raft.settings import QuorumSettings
from barnabas.core.raft.voter_changes import VoterChanges
from barnabas.core.raft.voters import Voter, VoterHistory, VoterSet
from barnabas.model.errors import ErrorCode, invariant
from barnabas.model.ids import uuid_text
from barnabas.model.ports import Address, Random
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest
from barnabas.wire.api.api_versions import ApiVersionsRequest
from barnabas.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.wire.api.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.wire.api.fetch import FetchRequest
from barnabas.wire.api.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.api.update_raft_voter import UpdateRaftVoterRequest
from barnabas.wire.api.vote import VoteRequest

__all__ = ["Identity", "QuorumSettings", "RaftMachine", "Role", "UnsupportedQuorum", "Vote", "Voter", "VoterSet"]


class UnsupportedQuorum(Exception):
    """The voters on disk do not fit this node."""


class RaftMachine:
    def __init__(self, identity: Identity, log: LogView, settings: QuorumSettings, random: Random) -> None:
        self._quorum = quorum = Quorum(identity, log, settings, random)
        self._election = Election(quorum)
        self._following = Following(quorum)
        self._leadership = Leadership(quorum)
        self._changes = VoterChanges(quorum, self._leadership)
        self._has_started = False
        self._is_stopping = False

    # What it is

    @property
    def me(self) -> Voter:
        return self._quorum.me

    @property
    def role(self) -> Role:
        return self._quorum.role

    @property
    def raft_epoch(self) -> int:
        return self._quorum.raft_epoch

    @property
    def high_watermark(self) -> int:
        """-1 until it is known; never goes back."""
        return self._quorum.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._quorum.voters

    @property
    def history(self) -> VoterHistory:
        return self._quorum.history

    @property
    def is_voter(self) -> bool:
        return self._quorum.is_voter

    @property
    def leader_id(self) -> int:
        """-1 where none is known."""
        return -1 if isinstance(self._quorum.state, Resigned) else self._quorum.leader_id

    @property
    def leader_address(self) -> Address | None:
        return self._quorum.leader_address

    @property
    def is_leading(self) -> bool:
        """Its leader-change record is in the log: more may be appended in this epoch."""
        return isinstance(self._quorum.state, Leading) and self._quorum.state.has_appended

    @property
    def last_leader(self) -> tuple[int, int] | None:
        """(node, monotonic time) of the last leader that has answered a fetch of this node."""
        return self._quorum.last_leader

    @property
    def majority_heard_ms(self) -> int | None:
        """Until when this leader is known to have led: a majority had fetched. None where no others vote."""
        state = self._quorum.state
        if not isinstance(state, Leading) or not state.has_other_voters:
            return None
        return state.check_quorum_ms - self._quorum.settings.check_quorum_timeout_ms

    @property
    def progress(self) -> list[ReplicaProgress]:
        """Of the other replicas, where this node leads."""
        state = self._quorum.state
        return list(state.progress.values()) if isinstance(state, Leading) else []

    @property
    def is_resigning(self) -> bool:
        """Voters have not heard yet that it has resigned."""
        return isinstance(self._quorum.state, Resigned) and bool(self._quorum.state.due_ms)

    @property
    def deadline_ms(self) -> int | None:
        """When to step with TimerFired; None while there is nothing to wait for."""
        state = self._quorum.state
        if isinstance(state, Candidate) and state.is_won:
            return None  # the vote is being written
        if self._is_stopping and not isinstance(state, Resigned):
            return None
        if isinstance(state, Follower) and not self._following.is_synced:
            return earliest((state.fetch_deadline_ms, state.update_at_ms))  # the next fetch waits for the disk
        if isinstance(state, Resigned) and self._is_stopping:
            return earliest(state.due_ms.values())
        return state.next_ms

    # Stepping

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        quorum = self._quorum
        quorum.now_ms = now_ms
        self._on(event)
        self._advance()
        effects, quorum.effects = quorum.effects, []
        return effects

    def _on(self, event: Event) -> None:
        match event:
            case TimerFired():
                pass
            case Received():
                self._on_received(event)
            case Responded():
                self._on_responded(event)
            case LogSynced():
                self._on_log_synced(event)
            case LogAppended():
                self._on_log_appended(event)
            case AppendFailed():
                self._on_append_failed()
            case VotePersisted():
                self._quorum.vote_persisted()
            case LogTruncated():
                self._following.truncated()
            case SnapshotOpened():
                self._following.snapshot_opened(event)
            case SnapshotWritten():
                self._following.snapshot_written(event)
            case SnapshotInstalled():
                self._following.snapshot_installed(event.key, event.voters)
            case SnapshotFailed():
                self._following.snapshot_failed()
            case Start():
                self._on_start(event)
            case Resign():
                self._on_resign()

    def _advance(self) -> None:
        """Whatever is due now, until no role changes any more."""
        while self._has_started:
            state = self._quorum.state
            self._act()
            if self._quorum.state is state:
                return

    def _act(self) -> None:
        state = self._quorum.state
        match state:
            case Follower():
                if not self._is_stopping:
                    self._following.advance(state)
            case Leading():
                self._changes.advance(state)
                if self._quorum.state is state:
                    self._leadership.advance(state)
            case Resigned():
                self._act_resigned(state)
            case Unattached() if not self._is_stopping:
                self._following.advance_unattached(state)
            case Prospective() if not self._is_stopping:
                self._election.advance_prospective(state)
            case Candidate() if not self._is_stopping:
                if self._election.advance_candidate(state):
                    self._leadership.begin(state.granted)

    def _act_resigned(self, state: Resigned) -> None:
        """A former leader leaves its epoch: followers that still take it for the leader learn that it is over."""
        if self._quorum.now_ms >= state.deadline_ms and not self._is_stopping:
            self._quorum.to_unattached(self._quorum.raft_epoch + 1)
        else:
            self._election.advance_resigned(state)

    # Events of this node

    def _on_start(self, event: Start) -> None:
        invariant(not self._has_started, "a node starts once")
        self._has_started = True
        quorum = self._quorum
        quorum.history = VoterHistory(event.voters)
        quorum.synced_offset = event.synced_offset
        self._check_voters()
        quorum.restore(event.vote)
        if quorum.log.latest_epoch > event.vote.raft_epoch:
            quorum.to_unattached(quorum.log.latest_epoch)
        elif quorum.is_only_voter:
            quorum.to_unattached(quorum.raft_epoch, voted=quorum.voted)
        elif quorum.leader_id == quorum.me.node_id:
            self._start_resigned()
        else:
            self._start_following()
        if quorum.is_only_voter:
            quorum.to_candidate(attempts=1)

    def _check_voters(self) -> None:
        voters, me = self._quorum.voters, self._quorum.me
        if [voter.node_id for voter in voters] == [me.node_id] and not voters.contains(me):
            named = uuid_text(next(iter(voters)).directory_id)
            raise UnsupportedQuorum(
                f"the metadata log belongs to the folder with the directory.id {named}, and meta.properties says "
                f"{uuid_text(me.directory_id)}: give that file its line directory.id={named} back"
            )

    def _start_resigned(self) -> None:
        """It led this epoch when it died. Records that it lost are gone for good: it must not write them anew."""
        quorum = self._quorum
        others = quorum.voters.others(quorum.me)
        quorum.state = Resigned(
            deadline_ms=quorum.now_ms + quorum.random_election_timeout_ms(),
            successors=(),
            due_ms={node.voter.node_id: quorum.now_ms for node in others},
        )

    def _start_following(self) -> None:
        quorum = self._quorum
        address = quorum.address_of(quorum.leader_id) if quorum.leader_id >= 0 else None
        if address is not None:
            quorum.to_follower(Leader(quorum.leader_id, quorum.raft_epoch, address))
        else:
            quorum.to_unattached(quorum.raft_epoch, voted=quorum.voted)

    def _on_log_synced(self, event: LogSynced) -> None:
        self._quorum.synced_offset = max(self._quorum.synced_offset, event.offset)
        self._leadership.update_high_watermark()

    def _on_log_appended(self, event: LogAppended) -> None:
        for offset, voters in event.voters:
            self._quorum.history.add(offset, voters)
        state = self._quorum.state
        if isinstance(state, Leading):
            state.has_appended = True
            self._changes.appended(event.voters)
            self._leadership.update_high_watermark()
        else:
            self._following.appended()

    def _on_append_failed(self) -> None:
        state = self._quorum.state
        if isinstance(state, Leading):
            self._leadership.resign(state)
        else:
            self._following.append_failed()

    def _on_resign(self) -> None:
        self._is_stopping = True
        state = self._quorum.state
        if isinstance(state, Leading):
            self._leadership.resign(state)

    # Messages

    def _on_received(self, event: Received) -> None:
        request = event.request
        match request:
            case AddRaftVoterRequest():
                self._changes.on_add(event, request)
                return
            case RemoveRaftVoterRequest():
                self._changes.on_remove(event, request)
                return
            case UpdateRaftVoterRequest():
                self._changes.on_update(event, request)
                return
        code = self._request_error(request)
        if code is not ErrorCode.NONE:
            self._quorum.reply(event.token, messages.top_error(request, code))
            return
        match request:
            case FetchRequest():
                self._leadership.on_fetch(event, request)
            case FetchSnapshotRequest():
                self._leadership.on_fetch_snapshot(event, request)
            case VoteRequest():
                self._election.on_vote(event, request)
            case BeginQuorumEpochRequest():
                self._election.on_begin_quorum_epoch(event, request)
            case EndQuorumEpochRequest():
                self._election.on_end_quorum_epoch(event, request)

    def _request_error(self, request: object) -> ErrorCode:
        cluster_id = getattr(request, "cluster_id", None)
        if cluster_id is not None and cluster_id != self._quorum.identity.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.NONE if messages.partition_of(request) is not None else ErrorCode.INVALID_REQUEST

    def _on_responded(self, event: Responded) -> None:
        request = event.request
        match request:
            case FetchRequest() | FetchSnapshotRequest():
                self._following.on_response(event, request)
            case VoteRequest():
                self._election.on_vote_response(event, request)
            case BeginQuorumEpochRequest():
                self._leadership.on_begin_response(event, request)
            case EndQuorumEpochRequest():
                self._election.on_end_response(event, request)
            case ApiVersionsRequest():
                self._changes.on_versions_response(event)
            case _:
                self._following.on_update_response()
