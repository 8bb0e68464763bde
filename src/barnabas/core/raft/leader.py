"""Leading: serves fetches, commits what a majority has synced, and resigns when a majority is silent.

Two rules make the high watermark safe. The leader counts itself up to what it has synced, and a voter up to the offset
that it fetches from, since it syncs before it fetches. And the high watermark moves only onto records of the leader's
own epoch (Raft paper, section 5.4.2); the first of them is the leader-change record.
"""

from __future__ import annotations

from barnabas.core.raft import messages
from barnabas.core.raft.events import (
    VOTE_LANE,
    AppendControl,
    HighWatermark,
    LeadershipBegins,
    Park,
    Received,
    ReplyRecords,
    ReplySnapshot,
    Responded,
    SnapshotKey,
)
from barnabas.core.raft.quorum import Quorum
from barnabas.core.raft.roles import Leading, ReplicaProgress
from barnabas.core.raft.voters import FROM_BOOTSTRAP, Voter, VoterNode
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import ZERO_UUID
from barnabas.wire.api import fetch, fetch_snapshot
from barnabas.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.wire.stored.raft import LeaderChangeMessage, LeaderChangeMessageVoter

MAX_OBSERVERS = 1000
"""Observers whose progress is remembered; beyond it the one that fetched longest ago is forgotten."""
OBSERVER_EXPIRY_MS = 300_000


class Leadership:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Beginning

    def begin(self, granted: set[int]) -> None:
        """The first records of an epoch: the leader change, and the voters where the log does not have them right."""
        quorum = self._quorum
        voters = quorum.voters
        quorum.to_leader([voter for voter in voters if voter.node_id in granted])
        own = VoterNode(quorum.me, quorum.identity.endpoints)
        is_stale = quorum.is_voter and voters.find(quorum.me.node_id) != own
        is_unwritten = quorum.history.latest_offset == FROM_BOOTSTRAP
        change = LeaderChangeMessage(
            leader_id=quorum.me.node_id,
            voters=[LeaderChangeMessageVoter(voter.node_id) for voter in voters],
            granting_voters=[LeaderChangeMessageVoter(each) for each in sorted(granted)],
        )
        quorum.emit(
            AppendControl(
                quorum.raft_epoch,
                change,
                voters.with_node(own) if is_stale or is_unwritten else None,
                with_kraft_version=is_unwritten,
            )
        )

    def resign(self, state: Leading) -> None:
        """The voters that are furthest come first among the successors."""
        ends = {voter: progress.end_offset for voter, progress in state.progress.items()}
        others = [node.voter for node in self._quorum.voters.others(self._quorum.me)]
        self._quorum.to_resigned(sorted(others, key=lambda voter: -ends.get(voter, -1)))

    # Acting

    def advance(self, state: Leading) -> None:
        quorum = self._quorum
        others = quorum.voters.others(quorum.me)
        if bool(others) != state.has_other_voters:
            state.has_other_voters = bool(others)
            state.check_quorum_ms = quorum.now_ms + quorum.settings.check_quorum_timeout_ms
        if not others:
            return
        if quorum.now_ms >= state.check_quorum_ms:
            self.resign(state)
        elif quorum.now_ms >= state.begin_quorum_ms:
            state.begin_quorum_ms = quorum.now_ms + quorum.settings.begin_quorum_interval_ms
            self._introduce(state, others)

    def _introduce(self, state: Leading, others: list[VoterNode]) -> None:
        """Tells the voters that do not fetch that there is a leader."""
        quorum = self._quorum
        silent_since_ms = quorum.now_ms - quorum.settings.begin_quorum_interval_ms
        for node in others:
            progress, address = state.progress.get(node.voter), quorum.address_of(node.voter.node_id)
            is_heard = progress is not None and progress.last_fetch_ms > silent_since_ms
            if is_heard or node.voter.node_id in state.begin_in_flight or address is None:
                continue
            state.begin_in_flight.add(node.voter.node_id)
            request = messages.begin_request(
                quorum.identity.cluster_id, quorum.me, node.voter, quorum.raft_epoch, quorum.identity.endpoints
            )
            quorum.send(node.voter.node_id, address, VOTE_LANE, request)

    def on_begin_response(self, event: Responded, request: BeginQuorumEpochRequest) -> None:
        state = self._quorum.state
        if isinstance(state, Leading):
            state.begin_in_flight.discard(event.node_id)
        if event.error is None:
            self._quorum.observe(messages.read_answer(event.response).leader)

    # Committing

    def update_high_watermark(self) -> None:
        quorum, state = self._quorum, self._quorum.state
        if not isinstance(state, Leading) or not state.has_appended:
            return
        ends = sorted((self._end_of(state, voter) for voter in quorum.voters), reverse=True)
        reached = ends[quorum.voters.majority - 1] if ends else -1
        if reached <= max(state.epoch_start_offset, quorum.high_watermark):
            return
        quorum.high_watermark = reached
        quorum.emit(HighWatermark(reached))
        if not state.has_begun:
            state.has_begun = True
            quorum.emit(LeadershipBegins(quorum.raft_epoch))

    def _end_of(self, state: Leading, voter: Voter) -> int:
        if voter == self._quorum.me:
            return self._quorum.synced_offset
        progress = state.progress.get(voter)
        return progress.end_offset if progress is not None else -1

    # Fetches

    def leader_error(self, raft_epoch: int) -> ErrorCode:
        quorum = self._quorum
        if raft_epoch < quorum.raft_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if raft_epoch > quorum.raft_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(quorum.state, Leading) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def on_fetch(self, event: Received, request: fetch.FetchRequest) -> None:
        quorum, wanted = self._quorum, messages.partition_of(request)
        code = self._fetch_error(request, wanted)
        if code is not ErrorCode.NONE:
            refused = _fetched(code)
            quorum.reply(event.token, messages.fetch_response(quorum.leader, refused))
            return
        data = _fetched()
        state = quorum.state
        if not self._is_continued(wanted, data):
            quorum.reply(event.token, messages.fetch_response(quorum.leader, data))
            return
        if not event.has_waited:
            node_id = max(request.replica_id, request.replica_state.replica_id)
            self._fetched_by(node_id, wanted.replica_directory_id, wanted.fetch_offset)
        if isinstance(state, Leading) and state.has_begun:
            data.high_watermark = quorum.high_watermark
        self._answer(event, request, wanted, data)

    def _fetch_error(self, request: fetch.FetchRequest, wanted: fetch.FetchPartition) -> ErrorCode:
        is_absurd = request.max_wait_ms < 0 or wanted.fetch_offset < 0 or wanted.last_fetched_epoch < 0
        if is_absurd or wanted.last_fetched_epoch > wanted.current_leader_epoch:
            return ErrorCode.INVALID_REQUEST
        return self.leader_error(wanted.current_leader_epoch)

    def _answer(
        self, event: Received, request: fetch.FetchRequest, wanted: fetch.FetchPartition, data: fetch.PartitionData
    ) -> None:
        quorum = self._quorum
        has_news = quorum.log.log_end_offset > wanted.fetch_offset or data.high_watermark > wanted.high_watermark
        if has_news or event.has_waited or not request.max_wait_ms:
            response = messages.fetch_response(quorum.leader, data)
            quorum.emit(ReplyRecords(event.token, request, response, quorum.raft_epoch))
        else:
            quorum.emit(Park(event.token, request, wanted.fetch_offset, wanted.high_watermark, request.max_wait_ms))

    def _is_continued(self, wanted: fetch.FetchPartition, data: fetch.PartitionData) -> bool:
        """Whether the reader's log is the beginning of this one; if not, says what the reader has to do."""
        log = self._quorum.log
        latest = log.latest_snapshot
        offset, raft_epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        is_start = offset == log.log_start_offset
        is_behind = offset < log.log_start_offset or raft_epoch < log.log_start_epoch
        is_empty = offset == 0 and latest is not None and latest.end_offset > 0
        if is_behind or is_empty or (is_start and offset > 0 and raft_epoch != log.log_start_epoch):
            if latest is None or not latest.end_offset:
                data.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                data.snapshot_id = fetch.SnapshotId(latest.end_offset, latest.raft_epoch)
            return False
        if offset == 0 and raft_epoch == 0:
            return True
        known_epoch, end_offset = log.end_offset_for_epoch(raft_epoch)
        if known_epoch == raft_epoch and end_offset >= offset:
            return True
        data.diverging_epoch = fetch.EpochEndOffset(known_epoch, end_offset)
        return False

    def _fetched_by(self, node_id: int, directory_id: bytes, offset: int) -> None:
        progress = self._heard_from(node_id, directory_id)
        if progress is not None:
            progress.fetched(offset, self._quorum.log.log_end_offset, self._quorum.now_ms)
            self.update_high_watermark()

    def _heard_from(self, node_id: int, directory_id: bytes) -> ReplicaProgress | None:
        quorum, state = self._quorum, self._quorum.state
        if not isinstance(state, Leading) or node_id < 0 or node_id == quorum.me.node_id:
            return None
        replica = self._replica(node_id, directory_id)
        progress = state.progress.get(replica)
        if progress is None:
            self._forget_observers(state)
            progress = state.progress[replica] = ReplicaProgress(replica)
        if quorum.voters.contains(replica):
            state.fetched_since_check.add(node_id)
            self._check_quorum(state)
        return progress

    def _replica(self, node_id: int, directory_id: bytes) -> Voter:
        voter = self._quorum.voters.find(node_id)
        if voter is not None and directory_id == ZERO_UUID:
            return voter.voter
        return Voter(node_id, directory_id)

    def _check_quorum(self, state: Leading) -> None:
        quorum = self._quorum
        needed = quorum.voters.majority - (1 if quorum.is_voter else 0)
        if len(state.fetched_since_check) >= needed:
            state.fetched_since_check.clear()
            state.check_quorum_ms = quorum.now_ms + quorum.settings.check_quorum_timeout_ms

    def _forget_observers(self, state: Leading) -> None:
        voters, now_ms = self._quorum.voters, self._quorum.now_ms
        observers = sorted(
            (each for each in state.progress.values() if not voters.contains(each.replica)),
            key=lambda each: each.last_fetch_ms,
        )
        excess = len(observers) - MAX_OBSERVERS + 1
        for position, each in enumerate(observers):
            if position < excess or now_ms - each.last_fetch_ms > OBSERVER_EXPIRY_MS:
                del state.progress[each.replica]

    # Snapshots

    def on_fetch_snapshot(self, event: Received, request: fetch_snapshot.FetchSnapshotRequest) -> None:
        quorum, wanted = self._quorum, messages.partition_of(request)
        key = SnapshotKey(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
        part = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot()
        part.error_code = self.leader_error(wanted.current_leader_epoch)
        size = None
        if not part.error_code:
            size = quorum.log.snapshot_bytes(key) if key.end_offset > 0 else None  # 0-0 is no content of the log
            if size is None:
                part.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= wanted.position < size:
                part.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        response = messages.snapshot_response(quorum.leader, part)
        if part.error_code or size is None:
            quorum.reply(event.token, response)
            return
        progress = self._heard_from(request.replica_id, wanted.replica_directory_id)
        if progress is not None:
            progress.last_fetch_ms = quorum.now_ms
        part.snapshot_id = fetch_snapshot.SnapshotId(key.end_offset, key.raft_epoch)
        part.size, part.position = size, wanted.position
        quorum.emit(ReplySnapshot(event.token, response, key, wanted.position, max(request.max_bytes, 1)))


def _fetched(code: ErrorCode = ErrorCode.NONE) -> fetch.PartitionData:
    return fetch.PartitionData(
        0, code, high_watermark=-1, last_stable_offset=-1, aborted_transactions=None, records=b""
    )
