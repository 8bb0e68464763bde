"""Groups of librdkafka (confluent-kafka) against a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions

from barnabas.testing import EmbeddedBroker
from tests.conformance.groups import TIMEOUT_S, Member, Place, create_topic, fill, poll_until, shared_out

NewName = Callable[[], str]
NewMember = Callable[..., Member]


@pytest.fixture
def servers(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def new_member(servers: str) -> Iterator[NewMember]:
    members: list[Member] = []

    def make(group: str, *topics: str, **settings: object) -> Member:
        members.append(Member(servers, group, topics, **settings))
        return members[-1]

    yield make
    for member in members:
        member.close()


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_eager_members_share(servers: str, new_topic: NewName, new_member: NewMember, assignor: str) -> None:
    topic = new_topic()
    places = create_topic(servers, topic, 6)
    fill(servers, topic, 6, 5)
    group: list[Member] = []
    for _ in range(3):
        group.append(new_member(topic, topic, partition_assignment_strategy=assignor))
        poll_until(group, lambda: shared_out(group, places), "everything is shared out")
    poll_until(group, lambda: len({read for m in group for read in m.read}) == 30, "everything is read")
    group.pop().close()
    poll_until(group, lambda: shared_out(group, places), "two share what three had")


def test_cooperative_members_move_only_what_must_move(servers: str, new_topic: NewName, new_member: NewMember) -> None:
    topic = new_topic()
    places = create_topic(servers, topic, 6)
    first = new_member(topic, topic, partition_assignment_strategy="cooperative-sticky")
    poll_until([first], lambda: first.owned == places, "one has all")
    second = new_member(topic, topic, partition_assignment_strategy="cooperative-sticky")
    poll_until([first, second], lambda: shared_out([first, second], places), "two share")
    assert len(first.taken) == 3
    assert sorted(second.given) == sorted(first.taken)
    third = new_member(topic, topic, partition_assignment_strategy="cooperative-sticky")
    members = [first, second, third]
    poll_until(members, lambda: shared_out(members, places), "three share")
    assert (len(first.taken), len(second.taken), len(third.given)) == (4, 1, 2)
    before = set(first.owned), set(second.owned)
    third.close()
    poll_until([first, second], lambda: shared_out([first, second], places), "two share again")
    assert before[0] <= first.owned
    assert before[1] <= second.owned
    assert (len(first.taken), len(second.taken)) == (4, 1), "what nobody had to give up was taken"


def test_static_members_restart_without_a_rebalance(
    servers: str, new_topic: NewName, new_member: NewMember, admin: AdminClient
) -> None:
    topic = new_topic()
    places = create_topic(servers, topic, 4)
    first = new_member(topic, topic, group_instance_id="one")
    second = new_member(topic, topic, group_instance_id="two")
    poll_until([first, second], lambda: shared_out([first, second], places), "two share")
    owned, rebalances = set(second.owned), first.rebalances
    second.close()
    second = new_member(topic, topic, group_instance_id="two")
    poll_until([first, second], lambda: second.owned, "it is back")
    assert second.owned == owned
    assert first.rebalances == rebalances
    described = admin.describe_consumer_groups([topic])[topic].result(60)
    assert sorted(member.group_instance_id for member in described.members) == ["one", "two"]


def test_a_former_static_member_is_fenced(servers: str, new_topic: NewName, new_member: NewMember) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    first = new_member(topic, topic, group_instance_id="one")
    poll_until([first], lambda: first.owned, "it has its place")
    second = new_member(topic, topic, group_instance_id="one")
    poll_until([second], lambda: second.owned, "its successor has it")
    with pytest.raises(KafkaException) as caught:  # noqa: PT012 -- whichever poll learns of it
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = first.consumer.poll(0.1)
            if message is not None and message.error() is not None:
                raise KafkaException(message.error())
    assert caught.value.args[0].code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)


def test_commits(servers: str, new_topic: NewName, new_member: NewMember) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    fill(servers, topic, 1, 20)
    place = TopicPartition(topic, 0)
    member = new_member(topic, topic)
    poll_until([member], lambda: len(member.read) == 20, "all is read")
    assert member.consumer.committed([place], 60)[0].offset < 0
    (told,) = member.consumer.commit(offsets=[TopicPartition(topic, 0, 7, metadata="note")], asynchronous=False)
    assert told.error is None
    (found,) = member.consumer.committed([place], 60)
    assert (found.offset, found.metadata) == (7, "note")
    done: list[object] = []
    member.consumer.commit(offsets=[TopicPartition(topic, 0, 9)], asynchronous=True)
    deadline = time.monotonic() + TIMEOUT_S
    while not done and time.monotonic() < deadline:
        member.poll()
        if member.consumer.committed([place], 60)[0].offset == 9:
            done.append(True)
    assert done
    low, high = member.consumer.get_watermark_offsets(place, 60)
    assert (low, high - member.consumer.committed([place], 60)[0].offset) == (0, 11), "the lag"
    member.consumer.seek(TopicPartition(topic, 0, 15))
    member.read.clear()
    poll_until([member], lambda: (0, 19) in member.read, "it reads from where it was told to")
    assert member.read[0] == (0, 15)
    member.close()
    again = new_member(topic, topic)
    poll_until([again], lambda: again.read, "another goes on")
    assert again.read[0] == (0, 9)


def test_auto_commit_and_offset_reset(servers: str, new_topic: NewName, new_member: NewMember) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    fill(servers, topic, 1, 5)
    late = new_member(f"{topic}-late", topic, auto_offset_reset="latest")
    poll_until([late], lambda: late.owned, "it has its place")
    member = new_member(topic, topic, enable_auto_commit=True, auto_commit_interval_ms=50)
    poll_until([member], lambda: len(member.read) == 5, "all is read")
    place = TopicPartition(topic, 0)
    poll_until([member], lambda: member.consumer.committed([place], 60)[0].offset == 5, "it commits by itself")
    strict = new_member(f"{topic}-strict", topic, auto_offset_reset="error")
    errors: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        message = strict.consumer.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append(message.error().code())
    assert errors == [KafkaError._AUTO_OFFSET_RESET]
    assert late.read == []


def test_commits_without_members_and_against_members(servers: str, new_topic: NewName, new_member: NewMember) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    simple = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False, "log_level": 0})
    simple.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    simple.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert simple.committed([TopicPartition(topic, 0)], 10)[0].offset == 3
    member = new_member(topic, topic)
    poll_until([member], lambda: member.owned, "it has its place")
    with pytest.raises(KafkaException) as caught:
        simple.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    simple.close()


def test_a_topic_that_grows_is_shared_out_again(
    servers: str, new_topic: NewName, new_member: NewMember, admin: AdminClient
) -> None:
    topic = new_topic()
    create_topic(servers, topic, 2)
    member = new_member(topic, topic, topic_metadata_refresh_interval_ms=200)
    poll_until([member], lambda: len(member.owned) == 2, "it has both")
    for future in admin.create_partitions([NewPartitions(topic, 4)]).values():
        future.result(60)
    poll_until([member], lambda: len(member.owned) == 4, "it has the new ones too")


def test_admin_lists_and_describes(servers: str, new_topic: NewName, new_member: NewMember, admin: AdminClient) -> None:
    topic = new_topic()
    places = create_topic(servers, topic, 2)
    member = new_member(topic, topic, client_id="me")
    poll_until([member], lambda: member.owned == places, "it has its places")
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(60).valid}
    assert listed[topic].state == ConsumerGroupState.STABLE
    assert listed[topic].type == ConsumerGroupType.CLASSIC
    only = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(60).valid
    assert topic not in [each.group_id for each in only]
    described = admin.describe_consumer_groups([topic], include_authorized_operations=True)[topic].result(60)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (shown,) = described.members
    assert (shown.client_id, shown.host) == ("me", "/127.0.0.1")
    assert {(p.topic, p.partition) for p in shown.assignment.topic_partitions} == places
    assert described.coordinator.id in (1, 2, 3)
    nobody = admin.describe_consumer_groups(["nobody"])["nobody"].result(60)
    assert nobody.state == ConsumerGroupState.DEAD


def test_admin_alters_and_deletes_offsets_and_groups(
    servers: str, new_topic: NewName, new_member: NewMember, admin: AdminClient
) -> None:
    topic = new_topic()
    create_topic(servers, topic, 2)
    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 5)])
    admin.alter_consumer_group_offsets([wanted])[topic].result(60)
    assert offsets(admin, topic) == {(topic, 0): 4, (topic, 1): 5}
    member = new_member(topic, topic)
    poll_until([member], lambda: len(member.owned) == 2, "it has its places")
    answers = admin.alter_consumer_group_offsets([wanted])[topic].result(60).topic_partitions
    assert [part.error.code() for part in answers] == [KafkaError.UNKNOWN_MEMBER_ID] * 2
    assert refused(admin.delete_consumer_groups([topic])[topic]) == KafkaError.NON_EMPTY_GROUP
    member.close()
    admin.delete_consumer_groups([topic])[topic].result(60)
    assert refused(admin.delete_consumer_groups([topic])[topic]) == KafkaError.GROUP_ID_NOT_FOUND
    assert offsets(admin, topic) == {}


def refused(future: object) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(60)  # type: ignore[attr-defined]
    return int(caught.value.args[0].code())


def offsets(admin: AdminClient, group: str) -> dict[Place, int]:
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    return {(part.topic, part.partition): part.offset for part in found.topic_partitions}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_survives_a_restart(tmp_path: Path, new_topic: NewName, strategy: str) -> None:
    topic = new_topic()
    broker = EmbeddedBroker(data=str(tmp_path)).start()
    port, servers = broker.port, broker.bootstrap_servers
    places = create_topic(servers, topic, 4)
    members = [Member(servers, topic, [topic], partition_assignment_strategy=strategy) for _ in range(2)]
    try:
        poll_until(members, lambda: shared_out(members, places), "two share")
        fill(servers, topic, 4, 5)
        poll_until(members, lambda: len({read for m in members for read in m.read}) == 20, "all is read")
        for member in members:
            member.consumer.commit(asynchronous=False)
        before = [(set(member.owned), member.rebalances) for member in members]
        broker.stop()
        broker = EmbeddedBroker(data=str(tmp_path), port=port).start()
        fill(servers, topic, 4, 1)
        poll_until(members, lambda: len({read for m in members for read in m.read}) == 24, "they read on")
        assert [(member.owned, member.rebalances) for member in members] == before, "the restart made a rebalance"
        assert offsets(AdminClient({"bootstrap.servers": servers}), topic) == dict.fromkeys(places, 5)
    finally:
        for member in members:
            member.close()
        broker.stop()
