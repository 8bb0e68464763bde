"""Transactions of librdkafka (confluent-kafka) against a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas.client.wire import Client, transactions
from barnabas.testing import EmbeddedBroker
from tests.conformance.groups import create_topic, fill
from tests.reliability.raw import wait_until
from tests.reliability.stable_offsets import read_committed, wait_until_stable

NewName = Callable[[], str]

PATIENCE_S = 120
SHORT_MS = 1000


@pytest.fixture
def servers(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap_servers


def new_producer(servers: str, transactional_id: str, **settings: object) -> Producer:
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    known = {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer({**known, **dotted})
    producer.init_transactions(PATIENCE_S)
    return producer


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def values_in(servers: str, topic: str, partition: int = 0, *, isolation_level: str = "read_committed") -> list[bytes]:
    found = read_committed(servers, topic, isolation_level=isolation_level)
    return [message.value() or b"" for message in found[partition]]


def test_commit_and_abort(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 2)
    producer = new_producer(servers, topic)
    for number in range(6):
        producer.begin_transaction()
        send(producer, topic, b"a%d" % number, b"b%d" % number)
        send(producer, topic, b"c%d" % number, partition=1)
        if number % 3 == 1:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    wait_until_stable(servers, [topic], PATIENCE_S)
    assert values_in(servers, topic) == [b"a0", b"b0", b"a2", b"b2", b"a3", b"b3", b"a5", b"b5"]
    assert values_in(servers, topic, 1) == [b"c0", b"c2", b"c3", b"c5"]
    assert len(values_in(servers, topic, isolation_level="read_uncommitted")) == 12


def test_committed_readers_wait_for_the_end(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    producer = new_producer(servers, topic)
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    reader = Consumer({"bootstrap.servers": servers, **settings})
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        producer.begin_transaction()
        send(producer, topic, b"held back")
        other = Producer({"bootstrap.servers": servers})
        send(other, topic, b"behind it")
        assert values_in(servers, topic, isolation_level="read_uncommitted") == [b"held back", b"behind it"]
        assert values_in(servers, topic) == []
        assert reader.poll(0.5) is None
        producer.commit_transaction(PATIENCE_S)
        read = [reader.poll(PATIENCE_S) for _ in range(2)]
        assert [message and message.value() for message in read] == [b"held back", b"behind it"]
    finally:
        reader.close()


def test_a_second_producer_fences_the_first(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    first = new_producer(servers, topic)
    first.begin_transaction()
    send(first, topic, b"never committed")
    second = new_producer(servers, topic)
    second.begin_transaction()
    send(second, topic, b"committed")
    second.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE_S)
    error = caught.value.args[0]
    assert error.fatal()
    assert error.code() in {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
    wait_until_stable(servers, [topic], PATIENCE_S)
    assert values_in(servers, topic) == [b"committed"]


def test_a_transaction_that_takes_too_long_is_aborted(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    producer = new_producer(servers, topic, transaction_timeout_ms=SHORT_MS, message_timeout_ms=SHORT_MS)
    producer.begin_transaction()
    send(producer, topic, b"too late")
    wait_until_stable(servers, [topic], PATIENCE_S)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(PATIENCE_S)
    assert not caught.value.args[0].retriable()
    assert values_in(servers, topic) == []


def test_a_timeout_beyond_the_broker_s_is_refused(servers: str, new_topic: NewName) -> None:
    with pytest.raises(KafkaException) as caught:
        new_producer(servers, new_topic(), transaction_timeout_ms=1_000_000)
    assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def offsets_of(servers: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"})
    try:
        found = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=PATIENCE_S)
        return [each.offset for each in found]
    finally:
        consumer.close()


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_offsets_are_part_of_the_transaction(servers: str, new_topic: NewName, ending: str) -> None:
    source, target = new_topic(), new_topic()
    create_topic(servers, source, 2)
    create_topic(servers, target, 1)
    fill(servers, source, 2, 5)
    settings = {"group.id": source, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe([source])
    producer = new_producer(servers, target)
    try:
        messages = consumer.consume(10, PATIENCE_S)
        producer.begin_transaction()
        send(producer, target, *[message.value() or b"" for message in messages])
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
        (producer.commit_transaction if ending == "commit" else producer.abort_transaction)(PATIENCE_S)
    finally:
        consumer.close()
    wait_until_stable(servers, [target], PATIENCE_S)
    assert offsets_of(servers, source, source) == ([5, 5] if ending == "commit" else [-1001, -1001])
    assert len(values_in(servers, target)) == (10 if ending == "commit" else 0)


def test_offsets_of_a_former_member_are_refused(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 2)
    fill(servers, topic, 2, 1)
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    former = Consumer({"bootstrap.servers": servers, **settings})
    former.subscribe([topic])
    assert len(former.consume(2, PATIENCE_S)) == 2
    stale = former.consumer_group_metadata()
    former.close()
    producer = new_producer(servers, topic)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], stale, PATIENCE_S)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(PATIENCE_S)
    assert offsets_of(servers, topic, topic) == [-1001, -1001]


def test_pending_offsets_are_waited_for(servers: str, new_topic: NewName) -> None:
    """KIP-447: a new owner of a partition does not begin at an offset that an open transaction is about to move."""
    topic = new_topic()
    create_topic(servers, topic, 2)
    fill(servers, topic, 2, 3)
    settings = {"group.id": topic, "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    producer = new_producer(servers, topic)
    try:
        producer.begin_transaction()
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], metadata, PATIENCE_S)
        with pytest.raises(KafkaException) as caught:
            consumer.committed([TopicPartition(topic, 0)], timeout=2)
        assert caught.value.args[0].code() in {KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT}
        producer.commit_transaction(PATIENCE_S)
        assert consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)[0].offset == 2
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_transactions(servers: str, new_topic: NewName, codec: str) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    producer = new_producer(servers, topic, compression_type=codec, linger_ms=20)
    numbers = [b"%d" % number for number in range(300)]
    producer.begin_transaction()
    send(producer, topic, *numbers)
    producer.commit_transaction(PATIENCE_S)
    wait_until_stable(servers, [topic], PATIENCE_S)
    assert values_in(servers, topic) == numbers


def test_states_as_an_administrator_sees_them(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    producer = new_producer(servers, topic)
    with Client(servers) as client:
        assert transactions.describe_transaction(client, topic).state == "Empty"
        producer.begin_transaction()
        began_ms = time.time() * 1000
        send(producer, topic, b"open")
        info = transactions.describe_transaction(client, topic)
        assert (info.state, [str(each) for each in info.partitions]) == ("Ongoing", [f"{topic}-0"])
        assert abs(info.start_time_ms - began_ms) < PATIENCE_S * 1000
        producer.commit_transaction(PATIENCE_S)
        wait_until(
            lambda: transactions.describe_transaction(client, topic).state == "CompleteCommit", "the commit is complete"
        )
