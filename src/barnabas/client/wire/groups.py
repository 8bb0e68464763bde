"""Administration of consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.client.wire.client import Client
from barnabas.client.wire.coordinators import CoordinatorKind, ask_coordinator
from barnabas.client.wire.errors import check
from barnabas.client.wire.routed import by_topic
from barnabas.model.ids import TopicPartition
from barnabas.wire import codec
from barnabas.wire.api import delete_groups as delete_api
from barnabas.wire.api import describe_groups as describe_api
from barnabas.wire.api import list_groups as list_api
from barnabas.wire.api import offset_commit as commit_api
from barnabas.wire.api import offset_fetch as fetch_api
from barnabas.wire.schema import DecodeError, Message
from barnabas.wire.stored.consumer_protocol import ConsumerProtocolAssignment

R = TypeVar("R", bound=Message)


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assigned: tuple[TopicPartition, ...]


class Rebalance(NamedTuple):
    """Only brokers of this project tell of these."""

    timestamp_ms: int
    generation: int
    """-1 while it goes on."""
    member_count: int
    cause: str


class GroupInfo(NamedTuple):
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMember, ...]
    rebalances: tuple[Rebalance, ...]


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


def list_groups(client: Client) -> list[list_api.ListedGroup]:
    """The groups of all brokers."""
    found: list[list_api.ListedGroup] = []
    for node_id in client.node_ids():
        request = list_api.ListGroupsRequest()
        reply = client.call(request, list_api.ListGroupsResponse, node_id=node_id, codes=lambda r: [r.error_code])
        check(reply.error_code, f"broker {node_id}")
        found += reply.groups
    return sorted(found, key=lambda group: group.group_id)


def describe_group(client: Client, group_id: str) -> GroupInfo:
    """Raises BrokerError; a group that is not there has the state Dead, or GROUP_ID_NOT_FOUND is raised."""
    reply, node_id = _ask(
        client,
        group_id,
        describe_api.DescribeGroupsRequest(groups=[group_id]),
        describe_api.DescribeGroupsResponse,
        lambda reply: [group.error_code for group in reply.groups],
    )
    (found,) = reply.groups
    return GroupInfo(
        group_id,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        node_id,
        tuple(_member(member) for member in found.members),
        tuple(
            Rebalance(each.timestamp_ms, each.generation, each.member_count, each.cause) for each in found.rebalances
        ),
    )


def _member(member: describe_api.DescribedGroupMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        tuple(_assigned(member.member_assignment)),
    )


def _assigned(data: bytes) -> list[TopicPartition]:
    """Nothing where the members speak another language than consumers do."""
    if len(data) < 2:
        return []
    version = min(int.from_bytes(data[:2], "big"), 3)
    try:
        assignment = codec.decode(ConsumerProtocolAssignment, version, data, 2)[0]
    except DecodeError:
        return []
    return sorted(
        TopicPartition(each.topic, number) for each in assignment.assigned_partitions for number in each.partitions
    )


def committed_offsets(client: Client, group_id: str) -> dict[TopicPartition, Committed]:
    """All that the group has committed; nothing for a group that is not there. Raises BrokerError."""
    request = fetch_api.OffsetFetchRequest(
        group_id=group_id, topics=None, groups=[fetch_api.OffsetFetchRequestGroup(group_id, topics=None)]
    )
    reply, _ = _ask(client, group_id, request, fetch_api.OffsetFetchResponse, _fetch_codes)
    topics = reply.groups[0].topics if reply.groups else reply.topics
    return {
        TopicPartition(topic.name, part.partition_index): Committed(
            part.committed_offset, part.committed_leader_epoch, part.metadata or ""
        )
        for topic in topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def _fetch_codes(reply: fetch_api.OffsetFetchResponse) -> list[int]:
    return [reply.error_code, *(group.error_code for group in reply.groups)]


def commit_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits without being a member, which a group with members refuses. Raises BrokerError for the first error."""
    partition = commit_api.OffsetCommitRequestPartition
    topics = [
        commit_api.OffsetCommitRequestTopic(name, partitions=[partition(*part) for part in parts])
        for name, parts in by_topic(offsets)
    ]
    request = commit_api.OffsetCommitRequest(group_id=group_id, topics=topics)
    _ask(client, group_id, request, commit_api.OffsetCommitResponse, _commit_codes)


def _commit_codes(reply: commit_api.OffsetCommitResponse) -> list[int]:
    return [part.error_code for topic in reply.topics for part in topic.partitions]


def delete_group(client: Client, group_id: str) -> None:
    """With its offsets. Raises BrokerError."""
    request = delete_api.DeleteGroupsRequest([group_id])
    _ask(client, group_id, request, delete_api.DeleteGroupsResponse, lambda r: [each.error_code for each in r.results])


def _ask(
    client: Client, group_id: str, request: Message, answer: type[R], codes: Callable[[R], Iterable[int]]
) -> tuple[R, int]:
    return ask_coordinator(client, CoordinatorKind.GROUP, group_id, request, answer, codes)
