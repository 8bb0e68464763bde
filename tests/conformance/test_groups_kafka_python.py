"""Groups of kafka-python against a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from barnabas.testing import EmbeddedBroker
from tests.conformance.groups import TIMEOUT_S, create_topic, fill

NewName = Callable[[], str]
NewConsumer = Callable[..., KafkaConsumer]


@pytest.fixture
def servers(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=servers)
    yield client
    client.close()


@pytest.fixture
def new_consumer(servers: str) -> Iterator[NewConsumer]:
    made: list[KafkaConsumer] = []

    def make(group: str, topic: str, **settings: object) -> KafkaConsumer:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
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
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close(autocommit=False)


def poll_until(consumer: KafkaConsumer, condition: Callable[[], object], what: str) -> list:
    """The messages that came meanwhile. Long polls: one that ends while the client joins loses the assignment."""
    deadline = time.monotonic() + TIMEOUT_S
    messages: list = []
    while not condition():
        assert time.monotonic() < deadline, what
        for batch in consumer.poll(timeout_ms=1000).values():
            messages += batch
    return messages


class Polled:
    """A member on a thread of its own: joining blocks its poll until the others have joined too."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.consumer.poll(timeout_ms=500)

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.consumer.assignment())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.consumer.close(autocommit=False)


@pytest.fixture
def polled() -> Iterator[Callable[[KafkaConsumer], Polled]]:
    members: list[Polled] = []

    def make(consumer: KafkaConsumer) -> Polled:
        members.append(Polled(consumer))
        return members[-1]

    yield make
    for member in members:
        member.stop()


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor])
def test_members_share(
    servers: str, new_topic: NewName, new_consumer: NewConsumer, polled: Callable[..., Polled], assignor: type
) -> None:
    topic = new_topic()
    create_topic(servers, topic, 4)
    settings = {"partition_assignment_strategy": [assignor]}
    first = polled(new_consumer(topic, topic, **settings))
    wait_until(lambda: len(first.owned) == 4, "one has all")
    second = polled(new_consumer(topic, topic, **settings))
    wait_until(lambda: len(first.owned) == len(second.owned) == 2, "two share")
    assert not first.owned & second.owned
    second.stop()
    wait_until(lambda: len(first.owned) == 4, "one has all again")


def test_a_static_member_restarts(
    servers: str, new_topic: NewName, new_consumer: NewConsumer, polled: Callable[..., Polled]
) -> None:
    topic = new_topic()
    create_topic(servers, topic, 2)
    first = polled(new_consumer(topic, topic, group_instance_id="one"))
    second = polled(new_consumer(topic, topic, group_instance_id="two"))
    wait_until(lambda: len(first.owned) == len(second.owned) == 1, "two share")
    kept = second.owned
    second.stop()
    second = polled(new_consumer(topic, topic, group_instance_id="two"))
    wait_until(lambda: second.owned, "it is back")
    assert second.owned == kept
    assert len(first.owned) == 1


def test_commits_and_lag(servers: str, new_topic: NewName, new_consumer: NewConsumer) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    fill(servers, topic, 1, 10)
    place = TopicPartition(topic, 0)
    first = new_consumer(topic, topic)
    found = poll_until(first, lambda: first.assignment() and first.position(place) == 10, "all is read")
    assert [message.offset for message in found] == list(range(10))
    assert first.committed(place) is None
    first.commit({place: OffsetAndMetadata(4, "note", -1)})
    assert first.committed(place) == 4
    assert first.committed(place, metadata=True).metadata == "note"
    assert first.end_offsets([place])[place] - first.committed(place) == 6
    done: list[object] = []
    first.commit_async({place: OffsetAndMetadata(6, "", -1)}, callback=lambda *told: done.append(told))
    poll_until(first, lambda: done, "the commit is acknowledged")
    assert first.committed(place) == 6
    first.seek(place, 8)
    assert [m.offset for m in poll_until(first, lambda: first.position(place) == 10, "read again")] == [8, 9]
    first.close(autocommit=False)
    second = new_consumer(topic, topic)
    again = poll_until(second, lambda: second.assignment() and second.position(place) == 10, "another goes on")
    assert again[0].offset == 6


def test_auto_commit(servers: str, new_topic: NewName, new_consumer: NewConsumer) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    fill(servers, topic, 1, 3)
    consumer = new_consumer(topic, topic, enable_auto_commit=True, auto_commit_interval_ms=50)
    poll_until(consumer, lambda: consumer.committed(TopicPartition(topic, 0)) == 3, "it commits by itself")


def test_admin(servers: str, new_topic: NewName, new_consumer: NewConsumer, admin: KafkaAdminClient) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    place = TopicPartition(topic, 0)
    consumer = new_consumer(topic, topic, client_id="me")
    poll_until(consumer, consumer.assignment, "it has its place")
    consumer.commit({place: OffsetAndMetadata(0, "", -1)})
    assert topic in str(admin.list_groups())
    described = str(admin.describe_groups([topic]))
    assert "Stable" in described
    assert "me-" in described
    assert "NonEmptyGroup" in str(admin.delete_groups([topic]))
    consumer.close(autocommit=False)
    assert "Error" not in str(admin.delete_groups([topic]))
    assert "GroupIdNotFound" in str(admin.delete_groups([topic]))
