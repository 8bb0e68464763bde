"""kafka-python against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import InvalidReplicationFactorError, MessageSizeTooLargeError, TopicAlreadyExistsError

from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import wait_until

NewName = Callable[[], str]


@pytest.fixture
def admin(shared_broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=shared_broker.bootstrap_servers)
    yield client
    client.close()


def send(broker: EmbeddedBroker, topic: str, messages: list[dict], **settings: object) -> list:
    sender = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
    try:
        futures = [sender.send(topic, **message) for message in messages]
        sender.flush(60)
        return [future.get(60) for future in futures]
    finally:
        sender.close()


def read(broker: EmbeddedBroker, topic: str, count: int, start: int = 0) -> list:
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=60_000, enable_auto_commit=False, group_id=None
    )
    try:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek(TopicPartition(topic, 0), start)
        return [next(reader) for _ in range(count)]
    finally:
        reader.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(shared_broker: EmbeddedBroker, new_topic: NewName, codec: str | None) -> None:
    topic = new_topic()
    messages = [{"value": b"v%d" % n} for n in range(200)]
    send(shared_broker, topic, messages, compression_type=codec, linger_ms=20)
    assert [m.value for m in read(shared_broker, topic, 200)] == [m["value"] for m in messages]


def test_keys_headers_timestamps(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    message = {"value": b"v", "key": b"k", "headers": [("h", b"x")], "timestamp_ms": 1_700_000_000_000}
    (told,) = send(shared_broker, topic, [message])
    assert (told.offset, told.partition) == (0, 0)
    (found,) = read(shared_broker, topic, 1)
    assert (found.key, found.value, found.timestamp) == (b"k", b"v", 1_700_000_000_000)
    assert list(found.headers) == [("h", b"x")]


def test_idempotent_producer(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    told = send(shared_broker, topic, [{"value": b"%d" % n} for n in range(300)], enable_idempotence=True, acks="all")
    assert [one.offset for one in told] == list(range(300))


def test_offsets(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    send(shared_broker, topic, [{"value": b"x", "timestamp_ms": 1_700_000_000_000 + n} for n in range(5)])
    place = TopicPartition(topic, 0)
    reader = KafkaConsumer(bootstrap_servers=shared_broker.bootstrap_servers, group_id=None)
    assert reader.beginning_offsets([place]) == {place: 0}
    assert reader.end_offsets([place]) == {place: 5}
    assert reader.offsets_for_times({place: 1_700_000_000_003})[place].offset == 3
    assert reader.partitions_for_topic(topic) == {0}
    reader.close()


def test_topics(shared_broker: EmbeddedBroker, admin: KafkaAdminClient, new_topic: NewName) -> None:
    topic = new_topic()
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    wait_until(lambda: topic in admin.list_topics(), "every broker knows the topic")
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics([NewTopic(topic + "x", num_partitions=1, replication_factor=9)])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert described
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics(), "the topic is gone")


def test_too_large(shared_broker: EmbeddedBroker, admin: KafkaAdminClient, new_topic: NewName) -> None:
    topic = new_topic()
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "500"})])
    with pytest.raises(MessageSizeTooLargeError):
        send(shared_broker, topic, [{"value": b"x" * 1000}])
