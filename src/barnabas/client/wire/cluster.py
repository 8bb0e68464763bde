"""Administration of a cluster: its brokers, its quorum, moves of partitions, elections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from barnabas.client.wire.address import Address
from barnabas.client.wire.client import Client
from barnabas.client.wire.errors import BrokerError, check
from barnabas.client.wire.routed import by_topic, numbers_by_topic
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import METADATA_TOPIC, TopicPartition, Uuid
from barnabas.wire.api import alter_partition_reassignments as alter_api
from barnabas.wire.api import elect_leaders as elect_api
from barnabas.wire.api import list_partition_reassignments as list_api
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from barnabas.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

TIMEOUT_MS = 20_000
"""How long the controller may take; below what a request is waited for."""

Endpoint: TypeAlias = tuple[str, str, int]
"""(listener, host, port)."""


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class ClusterBroker(NamedTuple):
    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool


class QuorumReplica(NamedTuple):
    node_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumInfo(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: dict[int, list[Endpoint]]
    """Of the controllers, where the brokers tell them."""


class Reassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def list_brokers(client: Client) -> list[ClusterBroker]:
    """Also those that are fenced, where the broker tells them (KIP-1073). Raises BrokerError."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    reply = client.call(request, DescribeClusterResponse, codes=lambda reply: [reply.error_code])
    check(reply.error_code, "cluster", reply.error_message)
    found = [
        ClusterBroker(each.broker_id, Address(each.host, each.port), each.rack, each.is_fenced)
        for each in reply.brokers
    ]
    return sorted(found)


def unregister_broker(client: Client, node_id: int) -> None:
    """Raises BrokerError."""
    reply = client.call(
        UnregisterBrokerRequest(node_id), UnregisterBrokerResponse, codes=lambda reply: [reply.error_code]
    )
    check(reply.error_code, f"broker {node_id}", reply.error_message)


# The quorum


def describe_quorum(client: Client) -> QuorumInfo:
    """Raises BrokerError."""
    wanted = DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])
    reply = client.call(DescribeQuorumRequest([wanted]), DescribeQuorumResponse, codes=_quorum_codes)
    check(reply.error_code, "quorum", reply.error_message)
    found = reply.topics[0].partitions[0]
    check(found.error_code, "quorum", found.error_message)
    return QuorumInfo(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        [_replica(each) for each in found.current_voters],
        [_replica(each) for each in found.observers],
        {node.node_id: [(each.name, each.host, each.port) for each in node.listeners] for node in reply.nodes},
    )


def _quorum_codes(reply: DescribeQuorumResponse) -> list[int]:
    parts = [part.error_code for topic in reply.topics for part in topic.partitions]
    return [reply.error_code, *parts]


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        Uuid(state.replica_directory_id),
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


def add_voter(client: Client, node_id: int, directory_id: Uuid, endpoints: Sequence[Endpoint]) -> None:
    """Waits while the node catches up, as long as the client's time-out. Raises BrokerError."""
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=TIMEOUT_MS,
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[Listener(*endpoint) for endpoint in endpoints],
    )
    reply = client.call(request, AddRaftVoterResponse, codes=lambda reply: [reply.error_code])
    if reply.error_code == ErrorCode.DUPLICATE_VOTER and _is_voter(client, node_id, directory_id):
        return  # an attempt whose answer was lost
    check(reply.error_code, f"voter {node_id}", reply.error_message)


def _is_voter(client: Client, node_id: int, directory_id: Uuid) -> bool:
    return any((each.node_id, each.directory_id) == (node_id, directory_id) for each in describe_quorum(client).voters)


def remove_voter(client: Client, node_id: int, directory_id: Uuid) -> None:
    """Raises BrokerError."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
    reply = client.call(request, RemoveRaftVoterResponse, codes=lambda reply: [reply.error_code])
    if reply.error_code == ErrorCode.VOTER_NOT_FOUND and not _is_voter(client, node_id, directory_id):
        return
    check(reply.error_code, f"voter {node_id}", reply.error_message)


# Moves and elections


def alter_reassignments(
    client: Client, moves: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, BrokerError]:
    """Begins to move each partition to the replicas, or cancels for None; returns what was refused."""
    topics = [
        alter_api.ReassignableTopic(
            name,
            [alter_api.ReassignablePartition(number, None if to is None else list(to)) for number, to in parts],
        )
        for name, parts in by_topic(moves)
    ]
    request = alter_api.AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)
    reply = client.call(request, alter_api.AlterPartitionReassignmentsResponse, codes=lambda reply: [reply.error_code])
    check(reply.error_code, "reassignment", reply.error_message)
    client.forget([topic.name for topic in topics])
    return {
        TopicPartition(topic.name, part.partition_index): BrokerError(
            part.error_code, str(TopicPartition(topic.name, part.partition_index)), part.error_message
        )
        for topic in reply.responses
        for part in topic.partitions
        if part.error_code
    }


def list_reassignments(client: Client) -> dict[TopicPartition, Reassignment]:
    """Those under way. Raises BrokerError."""
    request = list_api.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    reply = client.call(request, list_api.ListPartitionReassignmentsResponse, codes=lambda reply: [reply.error_code])
    check(reply.error_code, "reassignments", reply.error_message)
    return {
        TopicPartition(topic.name, part.partition_index): Reassignment(
            tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)
        )
        for topic in reply.topics
        for part in topic.partitions
    }


def elect_leaders(
    client: Client, kind: ElectionType, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, BrokerError]:
    """For these partitions, or all; returns what failed. ELECTION_NOT_NEEDED counts as done. Raises BrokerError."""
    named = None if partitions is None else numbers_by_topic(partitions)
    wanted = None if named is None else [elect_api.TopicPartitions(name, numbers) for name, numbers in named]
    request = elect_api.ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)
    reply = client.call(request, elect_api.ElectLeadersResponse, codes=lambda reply: [reply.error_code])
    check(reply.error_code, "election")
    return {
        TopicPartition(topic.topic, part.partition_id): BrokerError(
            part.error_code, str(TopicPartition(topic.topic, part.partition_id)), part.error_message
        )
        for topic in reply.replica_election_results
        for part in topic.partition_result
        if part.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }
