"""Changes of the voter set while the quorum runs (KIP-853): one at a time, and only on committed ground.

Two sets that differ by one voter share a member in any two of their majorities, so two leaders of one epoch cannot be
elected. That holds only where the former set is committed before the next change, and where the leader has committed a
record of its own epoch, which shows that no other leader's change can still be committed.
"""

from __future__ import annotations

from barnabas.core.raft.events import VOTE_LANE, AppendControl, Received, Responded
from barnabas.core.raft.leader import Leadership
from barnabas.core.raft.messages import ADD, REMOVE, UPDATE, change_outcome
from barnabas.core.raft.quorum import Quorum
from barnabas.core.raft.roles import Leading, VoterChange
from barnabas.core.raft.voters import KRAFT_VERSION, Voter, VoterNode, VoterSet, address_in
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import ZERO_UUID, uuid_text
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest
from barnabas.wire.api.api_versions import ApiVersionsRequest
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.api.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse


class VoterChanges:
    def __init__(self, quorum: Quorum, leadership: Leadership) -> None:
        self._quorum = quorum
        self._leadership = leadership

    # Requests

    def on_add(self, event: Received, request: AddRaftVoterRequest) -> None:
        quorum = self._quorum
        endpoints = tuple((each.name, each.host, each.port) for each in request.listeners)
        address = address_in(endpoints, quorum.settings.listener)
        node = VoterNode(Voter(request.voter_id, request.voter_directory_id), endpoints)
        refusal = self._refusal(request.cluster_id, node.voter) or self._pending_refusal()
        if refusal is None and address is None:
            refusal = (
                ErrorCode.INVALID_REQUEST,
                f"the request has no endpoint of the listener {quorum.settings.listener}",
            )
        if refusal is None and quorum.voters.find(request.voter_id) is not None:
            refusal = ErrorCode.DUPLICATE_VOTER, f"node {request.voter_id} is a voter already: {self._listed()}"
        if refusal is not None or address is None:
            self._refuse(event, ADD, refusal or (ErrorCode.INVALID_REQUEST, ""))
            return
        self._begin(VoterChange(event.token, ADD, voter=node, waits_for_commit=request.ack_when_committed))
        quorum.send(request.voter_id, address, VOTE_LANE, ApiVersionsRequest("barnabas-raft", "1"))

    def on_remove(self, event: Received, request: RemoveRaftVoterRequest) -> None:
        quorum = self._quorum
        voter = Voter(request.voter_id, request.voter_directory_id)
        refusal = self._refusal(request.cluster_id, voter) or self._pending_refusal()
        if refusal is None and not quorum.voters.contains(voter):
            name = f"{voter.node_id} ({uuid_text(voter.directory_id)})"
            refusal = ErrorCode.VOTER_NOT_FOUND, f"voter {name} is none of {self._listed()}"
        if refusal is None and len(quorum.voters) == 1:
            refusal = ErrorCode.INVALID_REQUEST, "the last voter cannot be removed"
        if refusal is not None:
            self._refuse(event, REMOVE, refusal)
            return
        self._begin(VoterChange(event.token, REMOVE))
        self._append(quorum.voters.without(voter))

    def on_update(self, event: Received, request: UpdateRaftVoterRequest) -> None:
        quorum = self._quorum
        endpoints = tuple((each.name, each.host, each.port) for each in request.listeners)
        feature = request.kraft_version_feature
        low, high = feature.min_supported_version, feature.max_supported_version
        node = VoterNode(Voter(request.voter_id, request.voter_directory_id), endpoints, low, high)
        refusal = self._refusal(request.cluster_id, node.voter, request.current_leader_epoch)
        if refusal is None and (not endpoints or not 0 <= low <= high):
            refusal = ErrorCode.INVALID_REQUEST, ""
        refusal = refusal or self._pending_refusal()
        if refusal is None and not quorum.voters.contains(node.voter):
            refusal = ErrorCode.VOTER_NOT_FOUND, ""
        if refusal is None and not low <= KRAFT_VERSION <= high:
            refusal = ErrorCode.INVALID_REQUEST, ""
        if refusal is not None:
            self._refuse(event, UPDATE, refusal)
            return
        self._begin(VoterChange(None, UPDATE))
        self._append(quorum.voters.with_node(node))
        self._refuse(event, UPDATE, (ErrorCode.NONE, ""))

    def _refuse(self, event: Received, kind: str, refusal: tuple[ErrorCode, str]) -> None:
        response = change_outcome(kind, refusal[0], refusal[1] or None)
        leader = self._quorum.leader
        if isinstance(response, UpdateRaftVoterResponse) and leader.leader_id >= 0 and leader.address is not None:
            response.current_leader = CurrentLeader(leader.leader_id, leader.raft_epoch, *leader.address)
        self._quorum.reply(event.token, response)

    def _refusal(
        self, cluster_id: str | None, voter: Voter, raft_epoch: int | None = None
    ) -> tuple[ErrorCode, str] | None:
        own = self._quorum.identity.cluster_id
        if cluster_id is not None and cluster_id != own:
            return ErrorCode.INCONSISTENT_CLUSTER_ID, f"the cluster id here is {own}, not {cluster_id}"
        code = self._leadership.leader_error(self._quorum.raft_epoch if raft_epoch is None else raft_epoch)
        if code is not ErrorCode.NONE:
            return code, ""
        if voter.node_id < 0 or voter.directory_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST, "the request names no voter"
        return None

    def _pending_refusal(self) -> tuple[ErrorCode, str] | None:
        quorum, state = self._quorum, self._quorum.state
        if not isinstance(state, Leading):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, ""
        if state.change is not None:
            return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way"
        if not state.has_begun:
            return ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet"
        if quorum.history.latest_offset >= quorum.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet"
        return None

    def _listed(self) -> str:
        return ", ".join(f"{voter.node_id} ({uuid_text(voter.directory_id)})" for voter in self._quorum.voters)

    # The change under way

    def _begin(self, change: VoterChange) -> None:
        state = self._quorum.state
        if isinstance(state, Leading):
            change.expires_ms = self._quorum.now_ms + self._quorum.settings.request_timeout_ms
            state.change = change

    def on_versions_response(self, event: Responded) -> None:
        """The node to be added has told its versions; now it must also have caught up."""
        state = self._quorum.state
        change = state.change if isinstance(state, Leading) else None
        if change is None or change.voter is None or change.voter.voter.node_id != event.node_id:
            return
        node: VoterNode = change.voter
        change.voter = None
        if event.error is not None or event.response.error_code:
            self._end(ErrorCode.REQUEST_TIMED_OUT, "the new voter could not be asked for its versions")
            return
        features = {each.name: each for each in event.response.supported_features}
        found = features.get("kraft.version")
        if found is None or not found.min_version <= KRAFT_VERSION <= found.max_version:
            self._end(ErrorCode.INVALID_REQUEST, f"the new voter does not support kraft.version {KRAFT_VERSION}")
        elif not self._is_caught_up(node.voter):
            self._end(ErrorCode.REQUEST_TIMED_OUT, "the new voter has not caught up with the leader")
        else:
            added = VoterNode(node.voter, node.endpoints, found.min_version, found.max_version)
            self._append(self._quorum.voters.with_node(added))
            if not change.waits_for_commit:
                self._answer(change, ErrorCode.NONE)

    def _is_caught_up(self, voter: Voter) -> bool:
        quorum, state = self._quorum, self._quorum.state
        progress = state.progress.get(voter) if isinstance(state, Leading) else None
        return progress is not None and progress.last_caught_up_ms >= quorum.now_ms - quorum.settings.fetch_timeout_ms

    def _append(self, voters: VoterSet) -> None:
        self._quorum.emit(AppendControl(self._quorum.raft_epoch, voters=voters))

    def appended(self, voters: tuple[tuple[int, VoterSet], ...]) -> None:
        """The leader's VotersRecord is in the log: its set is in force from now on."""
        quorum, state = self._quorum, self._quorum.state
        if not voters or not isinstance(state, Leading):
            return
        state.check_quorum_ms = quorum.now_ms + quorum.settings.check_quorum_timeout_ms
        state.fetched_since_check.clear()
        state.begin_quorum_ms = quorum.now_ms
        if state.change is not None:
            state.change.offset = voters[-1][0]

    def advance(self, state: Leading) -> None:
        change, quorum = state.change, self._quorum
        if change is None:
            if not quorum.is_voter and state.has_begun and quorum.history.latest_offset < quorum.high_watermark:
                self._leadership.resign(state)  # elected to commit its own removal
            return
        if change.offset is not None and self._quorum.high_watermark > change.offset:
            self._end(ErrorCode.NONE)
            if not self._quorum.is_voter:
                self._leadership.resign(state)  # it is no voter of the committed set
        elif self._quorum.now_ms >= change.expires_ms:
            self._end(ErrorCode.REQUEST_TIMED_OUT, "the change of the voters took too long")

    def _end(self, code: ErrorCode, message: str | None = None) -> None:
        state = self._quorum.state
        if isinstance(state, Leading) and state.change is not None:
            change, state.change = state.change, None
            self._answer(change, code, message)

    def _answer(self, change: VoterChange, code: ErrorCode, message: str | None = None) -> None:
        token, change.token = change.token, None
        if token is not None:
            self._quorum.reply(token, change_outcome(change.kind, code, message))
