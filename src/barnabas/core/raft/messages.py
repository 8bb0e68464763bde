"""Requests and responses of the quorum, for the one partition that there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from barnabas.core.raft.voters import Endpoints, Voter
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.model.ports import Address
from barnabas.wire.api import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote
from barnabas.wire.api.add_raft_voter import AddRaftVoterResponse
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterResponse
from barnabas.wire.api.update_raft_voter import UpdateRaftVoterResponse
from barnabas.wire.schema import Message

ADD, REMOVE, UPDATE = "add", "remove", "update"
"""Kinds of voter changes."""


class Leader(NamedTuple):
    """What a node says about the leader."""

    leader_id: int
    raft_epoch: int
    address: Address | None = None


class Answer(NamedTuple):
    """The part that all responses of the quorum have."""

    top_error: int
    error_code: int
    leader: Leader
    partition: Any
    """None where the response is not about the metadata partition."""


# Requests


def vote_request(
    cluster_id: str, me: Voter, to: Voter, *, raft_epoch: int, last_epoch: int, end_offset: int, pre_vote: bool
) -> vote.VoteRequest:
    partition = vote.VoteRequestPartitionData(
        0, raft_epoch, me.node_id, me.directory_id, to.directory_id, last_epoch, end_offset, pre_vote
    )
    return vote.VoteRequest(cluster_id, to.node_id, [vote.VoteRequestTopicData(METADATA_TOPIC, [partition])])


def begin_request(
    cluster_id: str, me: Voter, to: Voter, raft_epoch: int, endpoints: Endpoints
) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    partition = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(0, to.directory_id, me.node_id, raft_epoch)
    topic = begin_quorum_epoch.BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [partition])
    listed = [begin_quorum_epoch.LeaderEndpoint(*endpoint) for endpoint in endpoints]
    return begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id, to.node_id, [topic], listed)


def end_request(
    cluster_id: str, me: Voter, raft_epoch: int, successors: Sequence[Voter], endpoints: Endpoints
) -> end_quorum_epoch.EndQuorumEpochRequest:
    partition = end_quorum_epoch.EndQuorumEpochRequestPartitionData(
        0,
        me.node_id,
        raft_epoch,
        [voter.node_id for voter in successors],
        [end_quorum_epoch.ReplicaInfo(voter.node_id, voter.directory_id) for voter in successors],
    )
    topic = end_quorum_epoch.EndQuorumEpochRequestTopicData(METADATA_TOPIC, [partition])
    listed = [end_quorum_epoch.LeaderEndpoint(*endpoint) for endpoint in endpoints]
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id, [topic], listed)


def fetch_request(
    cluster_id: str,
    me: Voter,
    *,
    raft_epoch: int,
    offset: int,
    last_epoch: int,
    high_watermark: int,
    max_bytes: int,
    max_wait_ms: int,
) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=raft_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        replica_id=me.node_id,
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[fetch.FetchTopic(METADATA_TOPIC, METADATA_TOPIC_ID, [wanted])],
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(me.node_id, -1),
    )


def snapshot_request(
    cluster_id: str, me: Voter, *, raft_epoch: int, end_offset: int, snapshot_epoch: int, position: int, max_bytes: int
) -> fetch_snapshot.FetchSnapshotRequest:
    key = fetch_snapshot.SnapshotId(end_offset, snapshot_epoch)
    wanted = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(0, raft_epoch, key, position, me.directory_id)
    topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(METADATA_TOPIC, [wanted])
    return fetch_snapshot.FetchSnapshotRequest(me.node_id, max_bytes, [topic], cluster_id)


def partition_of(request: Any) -> Any:
    """The entry of the metadata partition; None unless the request is about it alone."""
    topics = request.responses if isinstance(request, fetch.FetchResponse) else request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic: Any = topics[0]
    partition: Any = topic.partitions[0]
    name = next(name for name in ("partition_index", "partition", "index") if name in partition.__struct_fields__)
    return partition if getattr(partition, name) == 0 and _is_metadata(topic) else None


def _is_metadata(topic: Any) -> bool:
    if isinstance(topic, fetch.FetchTopic | fetch.FetchableTopicResponse):
        return bool(topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID)
    name = topic.name if hasattr(topic, "name") else topic.topic_name
    return bool(name == METADATA_TOPIC)


# Responses


def top_error(request: Message, code: ErrorCode) -> Message:
    match request:
        case vote.VoteRequest():
            return vote.VoteResponse(code)
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return begin_quorum_epoch.BeginQuorumEpochResponse(code)
        case end_quorum_epoch.EndQuorumEpochRequest():
            return end_quorum_epoch.EndQuorumEpochResponse(code)
        case fetch_snapshot.FetchSnapshotRequest():
            return fetch_snapshot.FetchSnapshotResponse(error_code=code)
        case _:
            return fetch.FetchResponse(error_code=code)


def vote_response(leader: Leader, code: ErrorCode, *, granted: bool = False) -> vote.VoteResponse:
    partition = vote.VoteResponsePartitionData(0, code, leader.leader_id, leader.raft_epoch, granted)
    listed = [vote.NodeEndpoint(node_id, *address) for node_id, address in _endpoint_of(leader)]
    return vote.VoteResponse(0, [vote.VoteResponseTopicData(METADATA_TOPIC, [partition])], listed)


def begin_response(leader: Leader, code: ErrorCode) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    partition = begin_quorum_epoch.BeginQuorumEpochResponsePartitionData(0, code, leader.leader_id, leader.raft_epoch)
    topic = begin_quorum_epoch.BeginQuorumEpochResponseTopicData(METADATA_TOPIC, [partition])
    listed = [begin_quorum_epoch.NodeEndpoint(node_id, *address) for node_id, address in _endpoint_of(leader)]
    return begin_quorum_epoch.BeginQuorumEpochResponse(0, [topic], listed)


def end_response(leader: Leader, code: ErrorCode) -> end_quorum_epoch.EndQuorumEpochResponse:
    partition = end_quorum_epoch.EndQuorumEpochResponsePartitionData(0, code, leader.leader_id, leader.raft_epoch)
    topic = end_quorum_epoch.EndQuorumEpochResponseTopicData(METADATA_TOPIC, [partition])
    listed = [end_quorum_epoch.NodeEndpoint(node_id, *address) for node_id, address in _endpoint_of(leader)]
    return end_quorum_epoch.EndQuorumEpochResponse(0, [topic], listed)


def fetch_response(leader: Leader, partition: fetch.PartitionData) -> fetch.FetchResponse:
    partition.current_leader = fetch.LeaderIdAndEpoch(leader.leader_id, leader.raft_epoch)
    listed = [fetch.NodeEndpoint(node_id, *address) for node_id, address in _endpoint_of(leader)]
    topic = fetch.FetchableTopicResponse(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])
    return fetch.FetchResponse(responses=[topic], node_endpoints=listed)


def snapshot_response(
    leader: Leader, partition: fetch_snapshot.FetchSnapshotResponsePartitionSnapshot
) -> fetch_snapshot.FetchSnapshotResponse:
    partition.current_leader = fetch_snapshot.LeaderIdAndEpoch(leader.leader_id, leader.raft_epoch)
    listed = [fetch_snapshot.NodeEndpoint(node_id, *address) for node_id, address in _endpoint_of(leader)]
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(METADATA_TOPIC, [partition])
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=listed)


def _endpoint_of(leader: Leader) -> Iterable[tuple[int, Address]]:
    return [(leader.leader_id, leader.address)] if leader.leader_id >= 0 and leader.address is not None else []


def read_answer(response: Any) -> Answer:
    partition = None if response.error_code else partition_of(response)
    if partition is None:
        return Answer(response.error_code, 0, Leader(-1, -1), None)
    known = getattr(partition, "current_leader", partition)
    address = next(
        (Address(node.host, node.port) for node in response.node_endpoints if node.node_id == known.leader_id), None
    )
    return Answer(0, partition.error_code, Leader(known.leader_id, known.leader_epoch, address), partition)


def change_outcome(kind: str, code: ErrorCode, message: str | None = None) -> Message:
    if kind == ADD:
        return AddRaftVoterResponse(error_code=code, error_message=message)
    if kind == REMOVE:
        return RemoveRaftVoterResponse(error_code=code, error_message=message)
    return UpdateRaftVoterResponse(error_code=code)
