"""Following: fetches, truncation of a diverging tail, snapshots, and the search for a leader.

A voter's fetch tells the leader that its log is synced up to the fetched offset, so it waits for the sync. The records
of a response are appended by the driver within the step's effects; its ``LogAppended`` moves the high watermark on.
"""

from __future__ import annotations

from typing import Any

from barnabas.core.raft import messages
from barnabas.core.raft.events import (
    FETCH_LANE,
    VOTE_LANE,
    AppendRecords,
    HighWatermark,
    InstallSnapshot,
    OpenSnapshot,
    Responded,
    SnapshotKey,
    SnapshotOpened,
    SnapshotWritten,
    Truncate,
    WriteSnapshot,
)
from barnabas.core.raft.quorum import Quorum
from barnabas.core.raft.roles import Fetching, Follower, Unattached
from barnabas.core.raft.voters import VoterSet
from barnabas.model.errors import ApiError, ErrorCode, invariant
from barnabas.model.ports import Address
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.wire.api.fetch import FetchRequest, PartitionData
from barnabas.wire.api.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.api.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from barnabas.wire.api.update_raft_voter import Listener as UpdatedListener
from barnabas.wire.schema import Message

PROBE_MS = 100
"""A node without a leader asks another node this often."""
LOST_LEADER_MS = 40
"""The longest wait, on the first failure, between a connection that the leader's machine refused and an election."""
FAILED_APPEND_MS = 500


class Following:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._leader_high_watermark = -1

    # Acting

    def advance_unattached(self, state: Unattached) -> None:
        quorum = self._quorum
        if not quorum.may_stand:
            state.deadline_ms = None
        elif state.deadline_ms is None:
            state.deadline_ms = quorum.now_ms + quorum.random_election_timeout_ms()
        if state.deadline_ms is not None and quorum.now_ms >= state.deadline_ms:
            quorum.to_prospective()
        elif state.probe_at_ms is not None and quorum.now_ms >= state.probe_at_ms and state.in_flight is None:
            self._probe(state)

    def _probe(self, state: Unattached) -> None:
        target = self._anyone()
        if target is None or not self.is_synced:
            state.probe_at_ms = self._quorum.now_ms + PROBE_MS
            return
        state.probe_at_ms = None
        state.in_flight = self._fetch_request(max_wait_ms=0)
        self._quorum.send(*target, FETCH_LANE, state.in_flight)

    def _anyone(self) -> tuple[int, Address] | None:
        """Another node that may know the leader."""
        quorum = self._quorum
        own = quorum.address_of(quorum.me.node_id)
        found = {
            address: node.voter.node_id
            for node in quorum.voters.others(quorum.me)
            if (address := quorum.address_of(node.voter.node_id)) is not None
        }
        for address in quorum.identity.bootstrap:
            if address != own:
                found.setdefault(address, -1)
        if not found:
            return None
        address, node_id = list(found.items())[quorum.random.randrange(0, len(found))]
        return node_id, address

    @property
    def is_synced(self) -> bool:
        return not self._quorum.identity.can_vote or self._quorum.synced_offset >= self._quorum.log.log_end_offset

    def advance(self, state: Follower) -> None:
        quorum = self._quorum
        if quorum.now_ms >= state.fetch_deadline_ms:
            if quorum.may_stand:
                quorum.to_prospective()
                return
            quorum.leader_failures += 1
            state.fetch_deadline_ms = quorum.now_ms + quorum.settings.fetch_timeout_ms
        if state.fetch_at_ms is not None and quorum.now_ms >= state.fetch_at_ms and self.is_synced:
            self._fetch(state)
        if quorum.now_ms >= state.update_at_ms:
            state.update_at_ms = quorum.now_ms + quorum.settings.update_voter_interval_ms
            self._update_voters(state)

    def _fetch(self, state: Follower) -> None:
        quorum = self._quorum
        target = self._target()
        if state.snapshot is not None and state.snapshot.position is None:
            return
        state.fetch_at_ms = None
        state.in_flight = self._next_request(state)
        quorum.send(*target, FETCH_LANE, state.in_flight)

    def _target(self) -> tuple[int, Address]:
        """The leader; an observer that fails to reach it asks others every second time."""
        quorum = self._quorum
        other = None if quorum.is_voter or quorum.leader_failures % 2 == 0 else self._anyone()
        if other is not None:
            return other
        address = quorum.leader_address
        invariant(address is not None, "a follower knows where its leader is")
        return quorum.leader_id, address  # type: ignore[return-value]

    def _next_request(self, state: Follower) -> Message:
        quorum, snapshot = self._quorum, state.snapshot
        if snapshot is None:
            return self._fetch_request(max_wait_ms=quorum.settings.fetch_max_wait_ms)
        return messages.snapshot_request(
            quorum.identity.cluster_id,
            quorum.me,
            raft_epoch=quorum.raft_epoch,
            end_offset=snapshot.key.end_offset,
            snapshot_epoch=snapshot.key.raft_epoch,
            position=snapshot.position or 0,
            max_bytes=quorum.settings.snapshot_max_bytes,
        )

    def _fetch_request(self, *, max_wait_ms: int) -> FetchRequest:
        quorum = self._quorum
        return messages.fetch_request(
            quorum.identity.cluster_id,
            quorum.me,
            raft_epoch=quorum.raft_epoch,
            offset=quorum.log.log_end_offset,
            last_epoch=quorum.log.latest_epoch,
            high_watermark=quorum.high_watermark,
            max_bytes=quorum.settings.fetch_max_bytes,
            max_wait_ms=max_wait_ms,
        )

    # Responses

    def on_response(self, event: Responded, request: FetchRequest | FetchSnapshotRequest) -> None:
        quorum, state = self._quorum, self._quorum.state
        is_ours = isinstance(state, Follower | Unattached) and state.in_flight is request
        if is_ours:
            state.in_flight = None  # type: ignore[union-attr]
        if event.error is not None:
            if is_ours:
                self._failed(event)
            return
        answer = messages.read_answer(event.response)
        quorum.observe(answer.leader)
        if not is_ours or quorum.state is not state:
            return
        is_from_leader = answer.leader == (quorum.leader_id, quorum.raft_epoch, answer.leader.address)
        if isinstance(state, Unattached) or answer.partition is None or answer.error_code or not is_from_leader:
            self._refused(state, answer.error_code)  # type: ignore[arg-type]
        elif isinstance(request, FetchRequest):
            self._heard(state)  # type: ignore[arg-type]
            self._take(state, answer.partition)  # type: ignore[arg-type]
        else:
            self._heard(state)  # type: ignore[arg-type]
            self._take_part(state, answer.partition)  # type: ignore[arg-type]

    def _heard(self, state: Follower) -> None:
        self._quorum.leader_failures = 0
        self._quorum.last_leader = (self._quorum.leader_id, self._quorum.now_ms)
        state.has_fetched = True
        state.fetch_deadline_ms = self._quorum.now_ms + self._quorum.settings.fetch_timeout_ms

    def _failed(self, event: Responded) -> None:
        """A connection that is refused or cut says that the leader's process is gone; a time-out says nothing."""
        quorum, state = self._quorum, self._quorum.state
        if isinstance(state, Unattached):
            state.probe_at_ms = quorum.now_ms + PROBE_MS
            return
        if not isinstance(state, Follower):
            return
        state.fetch_at_ms = quorum.now_ms + self._retry_ms()
        quorum.leader_failures += 1
        problem = event.response
        is_gone = isinstance(problem, ApiError) and problem.code is ErrorCode.NETWORK_EXCEPTION
        if is_gone and quorum.is_voter and event.node_id == quorum.leader_id:
            state.has_fetched = False
            longest_ms = min(LOST_LEADER_MS << min(quorum.leader_failures, 16) - 1, quorum.settings.fetch_timeout_ms)
            wait_ms = quorum.random.randrange(0, max(longest_ms, 1))
            state.fetch_deadline_ms = min(state.fetch_deadline_ms, quorum.now_ms + wait_ms)

    def _retry_ms(self) -> int:
        settings = self._quorum.settings
        longest_ms = max(settings.fetch_timeout_ms // 2, 1)
        return min(max(settings.retry_backoff_ms, 1) << min(self._quorum.leader_failures, 16), longest_ms)

    def _refused(self, state: Follower | Unattached, code: int) -> None:
        if isinstance(state, Unattached):
            state.probe_at_ms = self._quorum.now_ms + PROBE_MS
            return
        if state.snapshot is not None and code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            self._heard(state)
            if code == ErrorCode.POSITION_OUT_OF_RANGE and state.snapshot.position:
                state.snapshot.position = 0
            else:
                state.snapshot = None
        else:
            self._quorum.leader_failures += 1
        state.fetch_at_ms = self._quorum.now_ms + self._retry_ms()

    def _take(self, state: Follower, partition: PartitionData) -> None:
        quorum = self._quorum
        if partition.diverging_epoch.epoch >= 0:
            self._truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
            return
        if partition.snapshot_id.end_offset >= 0:
            key = SnapshotKey(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            invariant(key.end_offset >= quorum.high_watermark, "a snapshot does not undo what is committed")
            state.snapshot = Fetching(key)
            quorum.emit(OpenSnapshot(key))
            return
        self._leader_high_watermark = partition.high_watermark
        records: Any = partition.records
        if records is not None and len(records):
            quorum.emit(AppendRecords(records))
        else:
            self.appended()

    def _truncate(self, raft_epoch: int, end_offset: int) -> None:
        """To the end of what both logs have: the smaller end of the leader's epoch, or of an earlier one here."""
        quorum = self._quorum
        own_epoch, own_end = quorum.log.end_offset_for_epoch(raft_epoch)
        target = min(own_end, end_offset) if own_epoch == raft_epoch else own_end
        target = max(target, quorum.log.log_start_offset)
        invariant(target >= quorum.high_watermark, "a truncation does not undo what is committed")
        quorum.history.truncate(target)
        quorum.synced_offset = min(quorum.synced_offset, target)
        quorum.emit(Truncate(target))

    def truncated(self) -> None:
        if isinstance(self._quorum.state, Follower):
            self._quorum.state.fetch_at_ms = self._quorum.now_ms

    def appended(self) -> None:
        """What the leader sent is in the log, if it sent anything."""
        quorum, state = self._quorum, self._quorum.state
        if not isinstance(state, Follower):
            return
        state.fetch_at_ms = quorum.now_ms
        reached = min(self._leader_high_watermark, quorum.log.log_end_offset)
        if reached > quorum.high_watermark:
            quorum.high_watermark = reached
            quorum.emit(HighWatermark(reached))

    def append_failed(self) -> None:
        if isinstance(self._quorum.state, Follower):
            self._quorum.state.fetch_at_ms = self._quorum.now_ms + FAILED_APPEND_MS

    # Snapshots

    def _take_part(self, state: Follower, part: Any) -> None:
        snapshot = state.snapshot
        if snapshot is None:
            state.fetch_at_ms = self._quorum.now_ms
            return
        key = SnapshotKey(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        position, size, content = part.position, part.size, part.unaligned_records
        is_next = key == snapshot.key and position == snapshot.position and position + len(content) <= size
        if not is_next or not len(content) or snapshot.size not in (None, size):
            snapshot.position, snapshot.size = 0, None
            state.fetch_at_ms = self._quorum.now_ms + max(self._quorum.settings.retry_backoff_ms, 1)
            return
        snapshot.size = size
        self._quorum.emit(WriteSnapshot(key, position, content))

    def snapshot_opened(self, event: SnapshotOpened) -> None:
        self._go_on(event.key, event.position)

    def snapshot_written(self, event: SnapshotWritten) -> None:
        self._go_on(event.key, event.position)

    def _go_on(self, key: SnapshotKey, position: int) -> None:
        state = self._quorum.state
        if not isinstance(state, Follower) or state.snapshot is None or state.snapshot.key != key:
            return
        state.snapshot.position = position
        if position == state.snapshot.size:
            self._quorum.emit(InstallSnapshot(key))
        else:
            state.fetch_at_ms = self._quorum.now_ms

    def snapshot_installed(self, key: SnapshotKey, voters: VoterSet) -> None:
        quorum = self._quorum
        quorum.history.reset(key.end_offset - 1, voters)
        quorum.synced_offset = key.end_offset
        if key.end_offset > quorum.high_watermark:
            quorum.high_watermark = key.end_offset
            quorum.emit(HighWatermark(key.end_offset))
        self._end_snapshot(0)

    def snapshot_failed(self) -> None:
        self._end_snapshot(FAILED_APPEND_MS)

    def _end_snapshot(self, delay_ms: int) -> None:
        state = self._quorum.state
        if isinstance(state, Follower):
            state.snapshot = None
            state.fetch_at_ms = self._quorum.now_ms + delay_ms

    # Being a voter

    def _update_voters(self, state: Follower) -> None:
        """Keeps this node's entry among the voters right (KIP-853), or has it made (KIP-1186)."""
        quorum, identity = self._quorum, self._quorum.identity
        address = quorum.leader_address
        if state.is_updating or not identity.can_vote or address is None:
            return
        present = quorum.voters.find(quorum.me.node_id)
        request: Message | None = None
        if present is not None and present.voter == quorum.me:
            if present.endpoints != identity.endpoints:
                request = self._update_request()
        elif quorum.settings.auto_join and state.has_fetched:
            request = self._join_request() if present is None else self._remove_request(present.voter.directory_id)
        if request is not None:
            state.is_updating = True
            quorum.send(quorum.leader_id, address, VOTE_LANE, request)

    def _update_request(self) -> Message:
        identity = self._quorum.identity
        return UpdateRaftVoterRequest(
            identity.cluster_id,
            self._quorum.raft_epoch,
            self._quorum.me.node_id,
            self._quorum.me.directory_id,
            [UpdatedListener(*endpoint) for endpoint in identity.endpoints],
            KRaftVersionFeature(0, 1),
        )

    def _join_request(self) -> Message:
        quorum, identity = self._quorum, self._quorum.identity
        listeners = [Listener(*endpoint) for endpoint in identity.endpoints]
        timeout_ms = quorum.settings.request_timeout_ms
        return AddRaftVoterRequest(
            identity.cluster_id, timeout_ms, quorum.me.node_id, quorum.me.directory_id, listeners, False
        )

    def _remove_request(self, directory_id: bytes) -> Message:
        """The entry of a former disk of this node."""
        return RemoveRaftVoterRequest(self._quorum.identity.cluster_id, self._quorum.me.node_id, directory_id)

    def on_update_response(self) -> None:
        if isinstance(self._quorum.state, Follower):
            self._quorum.state.is_updating = False
