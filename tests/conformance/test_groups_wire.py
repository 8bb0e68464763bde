"""Requests about groups in every version, as clients of other languages send them, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.testing import EmbeddedBroker
from barnabas.wire import codec
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.reliability.raw import Raw, frame, wait_until

NewName = Callable[[], str]


@pytest.fixture
def raw(single_broker: EmbeddedBroker) -> Iterator[Raw]:
    with Raw(single_broker.port) as connection:
        request = FindCoordinatorRequest(key="any", coordinator_keys=["any"])
        connection.call(request, FindCoordinatorResponse, 4)
        yield connection


@pytest.fixture
def topic(raw: Raw, new_topic: NewName) -> str:
    name = new_topic()
    raw.create(name, 2)
    return name


def topic_id(raw: Raw, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return raw.call(request, MetadataResponse, 12).topics[0].topic_id


def join(group: str, member_id: str = "", **fields: object) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0")]
    return JoinGroupRequest(group, 6000, 10_000, member_id, None, "consumer", protocols, **fields)


def settled(raw: Raw, group: str, version: int = 9) -> JoinGroupResponse:
    """One member, in as few requests as the version allows."""
    joined = raw.call(join(group), JoinGroupResponse, version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = raw.call(join(group, joined.member_id), JoinGroupResponse, version)
    assert joined.error_code == 0
    given = [SyncGroupRequestAssignment(joined.member_id, b"mine")]
    request = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, "consumer", "range", given)
    assert raw.call(request, SyncGroupResponse, 5).assignment == b"mine"
    return joined


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(raw: Raw, version: int) -> None:
    reply = raw.call(FindCoordinatorRequest("g", 0, ["g", "h"]), FindCoordinatorResponse, version)
    found = reply.coordinators if version >= 4 else [reply]
    assert len(found) == (2 if version >= 4 else 1)
    assert all((each.error_code, each.node_id, each.host) == (0, 1, "127.0.0.1") for each in found)
    if version >= 1:
        request = FindCoordinatorRequest("mine", 1, ["mine"])
        reply = raw.call(request, FindCoordinatorResponse, version)
        found_transaction = reply.coordinators[0] if version >= 4 else reply
        assert (found_transaction.error_code, found_transaction.node_id) == (0, 1)
        request = FindCoordinatorRequest("g", 9, ["g"])
        reply = raw.call(request, FindCoordinatorResponse, version)
        code = reply.coordinators[0].error_code if version >= 4 else reply.error_code
        assert code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(10))
def test_join_sync_heartbeat_leave(raw: Raw, topic: str, version: int) -> None:
    joined = raw.call(join(topic), JoinGroupResponse, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = raw.call(join(topic, joined.member_id), JoinGroupResponse, version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert joined.protocol_name == "range"
    assert [member.member_id for member in joined.members] == [joined.member_id]
    sync_version = min(version, 5)
    given = [SyncGroupRequestAssignment(joined.member_id, b"mine")]
    request = SyncGroupRequest(topic, 1, joined.member_id, None, "consumer", "range", given)
    assert raw.call(request, SyncGroupResponse, sync_version).assignment == b"mine"
    beat = raw.call(HeartbeatRequest(topic, 1, joined.member_id), HeartbeatResponse, min(version, 4))
    assert beat.error_code == 0
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        leaving = LeaveGroupRequest(topic, joined.member_id, [MemberIdentity(joined.member_id)])
        left = raw.call(leaving, LeaveGroupResponse, min(version, 5))
        assert (left.members[0].error_code if min(version, 5) >= 3 else left.error_code) == expected


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch(raw: Raw, topic: str, version: int) -> None:
    identity = topic_id(raw, topic)
    commit(raw, topic, topic, {0: 5})
    for wanted in ([0, 1], None):
        if wanted is None and version < 2:
            continue
        single = (
            None if wanted is None else [OffsetFetchRequestTopic(topic, wanted), OffsetFetchRequestTopic("none", [0])]
        )
        several = None if wanted is None else [OffsetFetchRequestTopics(topic, identity, wanted)]
        groups = [OffsetFetchRequestGroup(topic, topics=several), OffsetFetchRequestGroup("nobody", topics=several)]
        reply = raw.call(OffsetFetchRequest(topic, groups, single), OffsetFetchResponse, version)
        topics = reply.topics if version < 8 else reply.groups[0].topics
        if version >= 8:
            assert [group.error_code for group in reply.groups] == [0, 0]
            assert all(part.committed_offset == -1 for each in reply.groups[1].topics for part in each.partitions)
        first = topics[0]
        assert (first.name == topic) if version < 10 else (first.topic_id == identity)
        found = {part.partition_index: part.committed_offset for part in first.partitions}
        assert found == ({0: 5, 1: -1} if wanted else {0: 5})
        if wanted and version < 8:
            assert [(part.committed_offset, part.error_code) for part in topics[1].partitions] == [(-1, 0)]
    if version >= 10:
        unknown = [OffsetFetchRequestTopics("", b"\xff" * 16, [0])]
        reply = raw.call(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(topic, topics=unknown)]), OffsetFetchResponse, version
        )
        assert reply.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def commit(
    raw: Raw, group: str, topic: str, offsets: dict[int, int], version: int = 9, **fields: object
) -> OffsetCommitResponse:
    parts = [OffsetCommitRequestPartition(number, offset) for number, offset in offsets.items()]
    topics = [OffsetCommitRequestTopic(topic, topic_id(raw, topic), parts)]
    return raw.call(OffsetCommitRequest(group_id=group, topics=topics, **fields), OffsetCommitResponse, version)


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit(raw: Raw, topic: str, version: int) -> None:
    reply = commit(raw, topic, topic, {0: 5, 1: 6}, version)
    assert [part.error_code for part in reply.topics[0].partitions] == [0, 0]
    unknown = [OffsetCommitRequestTopic("none", b"\xff" * 16, [OffsetCommitRequestPartition(0, 1)])]
    reply = raw.call(OffsetCommitRequest(group_id=topic, topics=unknown), OffsetCommitResponse, version)
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reply.topics[0].partitions[0].error_code == expected
    reply = commit(raw, topic, topic, {1: 7, 2: 1, -1: 1}, version)
    (answer,) = reply.topics
    codes = {part.partition_index: part.error_code for part in answer.partitions}
    assert codes == {1: 0, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    reply = commit(raw, "nobody", topic, {0: 1}, version, generation_id_or_member_epoch=3, member_id="x")
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert reply.topics[0].partitions[0].error_code == expected
    parts = [OffsetCommitRequestPartition(0, 1, -1, "x" * 4097), OffsetCommitRequestPartition(1, 1, -1, "x" * 4096)]
    topics = [OffsetCommitRequestTopic(topic, topic_id(raw, topic), parts)]
    reply = raw.call(OffsetCommitRequest(group_id=topic, topics=topics), OffsetCommitResponse, version)
    assert [part.error_code for part in reply.topics[0].partitions] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]


def test_a_commit_larger_than_a_message_may_be(raw: Raw, topic: str) -> None:
    joined = settled(raw, topic)
    raw.create(f"{topic}-wide", 400)
    parts = [OffsetCommitRequestPartition(number, 1, -1, "x" * 4096) for number in range(400)]
    topics = [OffsetCommitRequestTopic(f"{topic}-wide", partitions=parts)]
    request = OffsetCommitRequest(topic, joined.generation_id, joined.member_id, topics=topics)
    reply = raw.call(request, OffsetCommitResponse, 9)
    assert {part.error_code for part in reply.topics[0].partitions} == {0}


def test_an_assignment_larger_than_a_message_may_be(raw: Raw, topic: str) -> None:
    """An assignment that cannot be recorded does not count: the member gets an error and rejoins."""
    joined = raw.call(join(topic), JoinGroupResponse, 3)
    given = [SyncGroupRequestAssignment(joined.member_id, b"x" * 1_200_000)]
    request = SyncGroupRequest(topic, joined.generation_id, joined.member_id, None, "consumer", "range", given)
    assert raw.call(request, SyncGroupResponse, 5).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    beat = HeartbeatRequest(topic, joined.generation_id, joined.member_id)
    assert raw.call(beat, HeartbeatResponse, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settled(raw, topic)


@pytest.mark.parametrize("version", range(7))
def test_describe(raw: Raw, topic: str, version: int) -> None:
    joined = settled(raw, topic)
    request = DescribeGroupsRequest([topic, "nobody"], include_authorized_operations=True)
    known, unknown = raw.call(request, DescribeGroupsResponse, version).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.member_assignment, m.client_host) for m in known.members] == [
        (joined.member_id, b"mine", "/127.0.0.1")
    ]
    assert known.authorized_operations == (3400 if version >= 3 else -(1 << 31))
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert len(known.rebalances) == (1 if version >= 5 else 0)


@pytest.mark.parametrize("version", range(6))
def test_list(raw: Raw, topic: str, version: int) -> None:
    settled(raw, topic)
    commit(raw, f"{topic}-simple", topic, {0: 1})

    def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
        groups = raw.call(ListGroupsRequest(**filters), ListGroupsResponse, version).groups
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in groups}

    state, kind = ("Stable" if version >= 4 else ""), ("classic" if version >= 5 else "")
    assert listed()[topic] == ("consumer", state, kind)
    assert listed()[f"{topic}-simple"][0] == ""
    if version >= 4:
        assert topic in listed(states_filter=["stable"])
        assert topic not in listed(states_filter=["Empty"])
        assert f"{topic}-simple" in listed(states_filter=["EMPTY"])
    if version >= 5:
        assert topic in listed(types_filter=["Classic"])
        assert listed(types_filter=["consumer"]) == {}


@pytest.mark.parametrize("version", range(3))
def test_delete(raw: Raw, topic: str, version: int) -> None:
    settled(raw, topic)
    commit(raw, f"{topic}-simple", topic, {0: 1})
    request = DeleteGroupsRequest([topic, f"{topic}-simple", "nobody", "nobody"])
    results = raw.call(request, DeleteGroupsResponse, version).results
    assert [result.error_code for result in results] == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


def test_offset_delete(raw: Raw, topic: str) -> None:
    commit(raw, topic, topic, {0: 1, 1: 2})
    parts = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(7)]
    topics = [OffsetDeleteRequestTopic(topic, parts), OffsetDeleteRequestTopic("none", parts)]
    reply = raw.call(OffsetDeleteRequest(topic, topics), OffsetDeleteResponse, 0)
    codes = {each.name: [part.error_code for part in each.partitions] for each in reply.topics}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {topic: [0, unknown], "none": [unknown] * 2}
    reply = raw.call(OffsetDeleteRequest("nobody", topics), OffsetDeleteResponse, 0)
    assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_takes_its_offsets_along(raw: Raw, topic: str) -> None:
    commit(raw, topic, topic, {0: 5})
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    assert raw.call(request, DeleteTopicsResponse, 6).responses[0].error_code == 0
    all_offsets = OffsetFetchRequest(topic, topics=None)
    wait_until(lambda: raw.call(all_offsets, OffsetFetchResponse, 7).topics == [], "its offsets are gone")


def test_whoever_waits_and_goes_is_not_answered_wrongly(raw: Raw, topic: str, single_broker: EmbeddedBroker) -> None:
    """A follower's connection ends while its JoinGroup is parked; it is a member until it is not heard of."""
    joined = settled(raw, topic)
    with Raw(single_broker.port) as other:
        reply = other.call(join(topic), JoinGroupResponse, 9)
        other.send(join(topic, reply.member_id), 9)
        beat = HeartbeatRequest(topic, joined.generation_id, joined.member_id)
        wait_until(
            lambda: raw.call(beat, HeartbeatResponse, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS, "it has joined"
        )
    again = raw.call(join(topic, joined.member_id), JoinGroupResponse, 9)
    assert sorted(member.member_id for member in again.members) == sorted([joined.member_id, reply.member_id])


def introduced(raw: Raw, name: str = "librdkafka") -> Raw:
    """As a client that sends its heartbeats in the background."""
    raw.call(ApiVersionsRequest(name, "2.6"), ApiVersionsResponse, 3)
    return raw


def test_a_held_heartbeat_tells_of_a_rebalance_when_it_begins(
    raw: Raw, single_broker: EmbeddedBroker, topic: str
) -> None:
    joined = settled(introduced(raw), topic)
    raw.send(HeartbeatRequest(topic, joined.generation_id, joined.member_id), 4)
    with Raw(single_broker.port) as other:
        asked = other.call(join(topic), JoinGroupResponse, 9)
        other.send(join(topic, asked.member_id), 9)
        assert raw.receive(HeartbeatResponse, 4)[1].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_nothing_waits_behind_a_held_heartbeat(raw: Raw, topic: str) -> None:
    joined = settled(introduced(raw), topic)
    beat = HeartbeatRequest(topic, joined.generation_id, joined.member_id)
    for _ in range(50):  # seconds each, were they to wait
        raw.send(beat, 4)
        raw.send(MetadataRequest(topics=[]), 12)
        assert raw.receive(HeartbeatResponse, 4)[1].error_code == 0
        assert raw.receive(MetadataResponse, 12)[1].brokers
    raw.send_bytes(frame(beat, 4) + frame(MetadataRequest(topics=[]), 12) + frame(beat, 4) + frame(beat, 4))
    for answer, version in ((HeartbeatResponse, 4), (MetadataResponse, 12), (HeartbeatResponse, 4)):
        raw.receive(answer, version)


def assigned(*partitions: int) -> bytes:
    listed = [TopicPartition("t", list(partitions))] if partitions else []
    return b"\0\1" + codec.encode_bytes(ConsumerProtocolAssignment(listed), 1)


def cooperative(group: str, member_id: str = "", *owned: int) -> JoinGroupRequest:
    owns = [TopicPartition("t", list(owned))] if owned else []
    subscription = b"\0\1" + codec.encode_bytes(ConsumerProtocolSubscription(["t"], None, owns), 1)
    protocols = [JoinGroupRequestProtocol("cooperative-sticky", subscription)]
    return JoinGroupRequest(group, 1_800_000, 60_000, member_id, None, "consumer", protocols)


def cooperative_sync(joined: JoinGroupResponse, group: str, **given: bytes) -> SyncGroupRequest:
    listed = [SyncGroupRequestAssignment(member, assignment) for member, assignment in given.items()]
    named = "consumer", "cooperative-sticky"
    return SyncGroupRequest(group, joined.generation_id, joined.member_id, None, *named, listed)


@pytest.mark.parametrize("name", ["librdkafka", "apache-kafka-java", "kafkajs"])
def test_who_has_nothing_yet_is_told_so_or_of_the_rebalance_that_follows(name: str) -> None:
    """The first member must revoke one of two partitions; the second, a Java client, sees only the final result."""
    group = "g"
    with (
        EmbeddedBroker(settings={"barnabas.group.heartbeat.hold.ms": 600_000}) as broker,
        Raw(broker.port) as raw,
        Raw(broker.port) as other,
    ):
        introduced(other, name)
        raw.call(FindCoordinatorRequest(group), FindCoordinatorResponse, 3)
        mine = raw.call(cooperative(group), JoinGroupResponse, 9).member_id
        first = raw.call(cooperative(group, mine), JoinGroupResponse, 9)
        raw.call(cooperative_sync(first, group, **{mine: assigned(0, 1)}), SyncGroupResponse, 5)
        theirs = other.call(cooperative(group), JoinGroupResponse, 9).member_id
        other.send(cooperative(group, theirs), 9)
        beat = HeartbeatRequest(group, first.generation_id, mine)
        wait_until(lambda: raw.call(beat, HeartbeatResponse, 4).error_code, "the second joins")
        first = raw.call(cooperative(group, mine, 0, 1), JoinGroupResponse, 9)
        second = other.receive(JoinGroupResponse, 9)[1]
        raw.call(cooperative_sync(first, group, **{mine: assigned(0), theirs: assigned()}), SyncGroupResponse, 5)
        other.send(cooperative_sync(second, group), 5)
        told = other.receive(SyncGroupResponse, 5)[1] if name != "apache-kafka-java" else None
        raw.send(cooperative(group, mine, 0), 9)  # waits for the second
        if told is None:
            assert other.receive(SyncGroupResponse, 5)[1].error_code == ErrorCode.REBALANCE_IN_PROGRESS
        else:
            assert (told.error_code, told.assignment) == (0, assigned())


def test_the_topic_of_groups_comes_by_being_asked_for_too() -> None:
    with (
        EmbeddedBroker(settings={"offsets.topic.num.partitions": 3}) as broker,
        Raw(broker.port) as raw,
    ):
        names = [MetadataRequestTopic(name="__consumer_offsets"), MetadataRequestTopic(name="__transaction_state")]
        offsets, transactions = raw.call(MetadataRequest(topics=names), MetadataResponse, 4).topics
        assert (offsets.error_code, offsets.is_internal, len(offsets.partitions)) == (0, True, 3)
        assert transactions.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        request = DescribeConfigsRequest([DescribeConfigsResource(2, "__consumer_offsets", ["cleanup.policy"])])
        (policy,) = raw.call(request, DescribeConfigsResponse, 4).results[0].configs
        assert policy.value == "compact"
        settled(raw, "g")
