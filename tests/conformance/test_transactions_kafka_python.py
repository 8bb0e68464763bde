"""Transactions of kafka-python against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient
from kafka.errors import KafkaError, TransactionalIdNotFoundError
from kafka.structs import OffsetAndMetadata

from barnabas.testing import EmbeddedBroker
from tests.conformance.groups import create_topic, fill
from tests.reliability.raw import wait_until
from tests.reliability.stable_offsets import read_committed, wait_until_stable

NewName = Callable[[], str]
NewProducer = Callable[..., KafkaProducer]

PATIENCE_S = 120
SHORT_MS = 1000


@pytest.fixture
def servers(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap_servers


@pytest.fixture
def new_producer(servers: str) -> Iterator[NewProducer]:
    producers: list[KafkaProducer] = []

    def make(transactional_id: str, **settings: object) -> KafkaProducer:
        known = {"bootstrap_servers": servers, "transactional_id": transactional_id}
        producers.append(KafkaProducer(**known, max_block_ms=PATIENCE_S * 1000, **settings))
        producers[-1].init_transactions()
        return producers[-1]

    yield make
    for producer in producers:
        producer.close(timeout=0)


@pytest.fixture
def admin(servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=servers)
    yield client
    client.close()


def send(producer: KafkaProducer, topic: str, *values: bytes, partition: int = 0) -> None:
    futures = [producer.send(topic, value, partition=partition) for value in values]
    producer.flush(PATIENCE_S)
    for future in futures:
        future.get(PATIENCE_S)


def values_in(servers: str, topic: str, isolation_level: str = "read_committed") -> list[bytes]:
    return [message.value() or b"" for message in read_committed(servers, topic, isolation_level=isolation_level)[0]]


def test_commit_and_abort(servers: str, new_topic: NewName, new_producer: NewProducer) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    producer = new_producer(topic)
    for number in range(5):
        producer.begin_transaction()
        send(producer, topic, b"%d" % number, b"%d again" % number)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    wait_until_stable(servers, [topic], PATIENCE_S)
    assert values_in(servers, topic) == [b"0", b"0 again", b"2", b"2 again", b"4", b"4 again"]
    assert len(values_in(servers, topic, "read_uncommitted")) == 10


def test_its_reader_sees_committed_records_only(servers: str, new_topic: NewName, new_producer: NewProducer) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    producer = new_producer(topic)
    for number in range(4):
        producer.begin_transaction()
        send(producer, topic, *[b"%d" % number] * 20)
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.begin_transaction()
    send(producer, topic, b"open")
    known = {"bootstrap_servers": servers, "group_id": None, "enable_auto_commit": False}
    reader = KafkaConsumer(isolation_level="read_committed", consumer_timeout_ms=PATIENCE_S * 1000, **known)
    try:
        place = TopicPartition(topic, 0)
        reader.assign([place])
        reader.seek(place, 0)
        assert [next(reader).value for _ in range(40)] == [b"1"] * 20 + [b"3"] * 20
        assert reader.poll(timeout_ms=500) == {}
        assert reader.end_offsets([place])[place] == 84
        producer.commit_transaction()
        assert next(reader).value == b"open"
    finally:
        reader.close()


def test_a_second_producer_fences_the_first(servers: str, new_topic: NewName, new_producer: NewProducer) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    first = new_producer(topic)
    first.begin_transaction()
    send(first, topic, b"never committed")
    second = new_producer(topic)
    second.begin_transaction()
    send(second, topic, b"committed")
    second.commit_transaction()
    with pytest.raises(KafkaError, match=r"Fenced|Epoch"):
        first.commit_transaction()
    wait_until_stable(servers, [topic], PATIENCE_S)
    assert values_in(servers, topic) == [b"committed"]


def test_a_transaction_that_takes_too_long_is_aborted(
    servers: str, new_topic: NewName, new_producer: NewProducer
) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    producer = new_producer(topic, transaction_timeout_ms=SHORT_MS)
    producer.begin_transaction()
    send(producer, topic, b"too late")
    wait_until_stable(servers, [topic], PATIENCE_S)
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    assert values_in(servers, topic) == []


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_offsets_are_part_of_the_transaction(
    servers: str, new_topic: NewName, new_producer: NewProducer, ending: str
) -> None:
    source, target = new_topic(), new_topic()
    create_topic(servers, source, 1)
    create_topic(servers, target, 1)
    fill(servers, source, 1, 5)
    place = TopicPartition(source, 0)
    settings = {"group_id": source, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(source, bootstrap_servers=servers, consumer_timeout_ms=PATIENCE_S * 1000, **settings)
    try:
        messages = [next(consumer) for _ in range(5)]
        producer = new_producer(target)
        producer.begin_transaction()
        send(producer, target, *[message.value for message in messages])
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(5, "", -1)}, consumer.group_metadata())
        (producer.commit_transaction if ending == "commit" else producer.abort_transaction)()
        wait_until_stable(servers, [target], PATIENCE_S)
        assert consumer.committed(place) == (5 if ending == "commit" else None)
    finally:
        consumer.close(autocommit=False)
    assert len(values_in(servers, target)) == (5 if ending == "commit" else 0)


def test_administration(servers: str, new_topic: NewName, new_producer: NewProducer, admin: KafkaAdminClient) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    place = TopicPartition(topic, 0)
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions([topic])
    producer = new_producer(topic, transaction_timeout_ms=300_000)
    producer.begin_transaction()
    send(producer, topic, b"open")
    described = admin.describe_transactions([topic])[topic]
    assert (described.state.value, described.topic_partitions) == ("Ongoing", {place})
    assert described.transaction_timeout_ms == 300_000
    listed = admin.list_transactions(transactional_id_pattern=topic, state_filters=["Ongoing"])
    assert [each.producer_id for found in listed.values() for each in found] == [described.producer_id]
    (open_producer,) = admin.describe_producers([place])[place].active_producers
    assert (open_producer.producer_id, open_producer.current_transaction_start_offset) == (described.producer_id, 0)
    admin.abort_transaction(
        AbortTransactionSpec(
            place, open_producer.producer_id, open_producer.producer_epoch, max(0, open_producer.coordinator_epoch)
        )
    )
    wait_until(lambda: values_in(servers, topic) == [], "the record is aborted")
    wait_until_stable(servers, [topic], PATIENCE_S)
    assert values_in(servers, topic, "read_uncommitted") == [b"open"]
