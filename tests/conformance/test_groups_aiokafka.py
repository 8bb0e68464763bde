"""Groups of aiokafka against a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import IllegalStateError

from barnabas.testing import EmbeddedBroker
from tests.conformance.groups import TIMEOUT_S, create_topic, fill

NewName = Callable[[], str]


class Members:
    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.all: list[AIOKafkaConsumer] = []

    async def start(
        self, group: str, topic: str, listener: ConsumerRebalanceListener | None = None, **settings: object
    ) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=group,
            **{
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "session_timeout_ms": 60_000,
                "heartbeat_interval_ms": 100,
                "fetch_max_wait_ms": 20,
                **settings,
            },
        )
        consumer.subscribe([topic], listener=listener)
        await consumer.start()
        self.all.append(consumer)
        return consumer

    async def stop(self, consumer: AIOKafkaConsumer) -> None:
        self.all.remove(consumer)
        await consumer.stop()


@pytest.fixture
async def members(shared_broker: EmbeddedBroker) -> AsyncIterator[Members]:
    made = Members(shared_broker.bootstrap_servers)
    yield made
    for consumer in list(made.all):
        await made.stop(consumer)


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor])
async def test_members_share(members: Members, new_topic: NewName, assignor: type) -> None:
    topic = new_topic()
    create_topic(members.servers, topic, 6)
    group = [await members.start(topic, topic, partition_assignment_strategy=[assignor]) for _ in range(3)]
    await until(lambda: [len(each.assignment()) for each in group] == [2, 2, 2], "three share")
    assert len({place for each in group for place in each.assignment()}) == 6
    await members.stop(group.pop())
    await until(lambda: [len(each.assignment()) for each in group] == [3, 3], "two share")


async def test_commits(members: Members, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(members.servers, topic, 1)
    fill(members.servers, topic, 1, 10)
    place = TopicPartition(topic, 0)
    first = await members.start(topic, topic)
    assert [(await first.getone()).offset for _ in range(10)] == list(range(10))
    assert await first.committed(place) is None
    await first.commit({place: (4, "note")})
    assert await first.committed(place) == 4
    await first.commit()
    assert await first.committed(place) == 10
    first.seek(place, 7)
    assert (await first.getone()).offset == 7
    await first.commit({place: 5})
    await members.stop(first)
    second = await members.start(topic, topic)
    assert (await second.getone()).offset == 5
    with pytest.raises(IllegalStateError):
        await second.commit({TopicPartition("other", 0): 1})


async def test_auto_commit_and_reset(members: Members, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(members.servers, topic, 1)
    fill(members.servers, topic, 1, 3)
    place = TopicPartition(topic, 0)
    late = await members.start(f"{topic}-late", topic, auto_offset_reset="latest")
    await until(late.assignment, "it has its place")
    assert await late.position(place) == 3
    first = await members.start(topic, topic, enable_auto_commit=True, auto_commit_interval_ms=50)
    for _ in range(3):
        await first.getone()
    deadline = time.monotonic() + TIMEOUT_S
    while await first.committed(place) != 3:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_static_member_restarts(members: Members, new_topic: NewName) -> None:
    class Counting(ConsumerRebalanceListener):
        count = 0

        async def on_partitions_revoked(self, revoked: object) -> None:
            Counting.count += 1

        async def on_partitions_assigned(self, assigned: object) -> None:
            pass

    topic = new_topic()
    create_topic(members.servers, topic, 2)
    first = await members.start(topic, topic, Counting(), group_instance_id="one")
    second = await members.start(topic, topic, group_instance_id="two")
    await until(lambda: len(first.assignment()) == len(second.assignment()) == 1, "two share")
    kept, before = second.assignment(), Counting.count
    await members.stop(second)
    second = await members.start(topic, topic, group_instance_id="two")
    await until(second.assignment, "it is back")
    assert second.assignment() == kept
    assert Counting.count == before


async def test_admin(members: Members, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(members.servers, topic, 1)
    consumer = await members.start(topic, topic)
    await until(consumer.assignment, "it has its place")
    await consumer.commit({TopicPartition(topic, 0): 0})
    admin = AIOKafkaAdminClient(bootstrap_servers=members.servers)
    await admin.start()
    try:
        assert topic in [name for name, _ in await admin.list_consumer_groups()]
        (described,) = await admin.describe_consumer_groups([topic])
        assert "Stable" in str(described)
        offsets = await admin.list_consumer_group_offsets(topic)
        assert offsets[TopicPartition(topic, 0)].offset == 0
        coordinator = await admin.find_coordinator(topic)
        assert coordinator in (1, 2, 3)
    finally:
        await admin.close()
