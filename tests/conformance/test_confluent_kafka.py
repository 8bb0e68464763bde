"""librdkafka (confluent-kafka) against a real broker; the tests would run against Kafka too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from barnabas.testing import EmbeddedBroker
from barnabas.wire import batch
from tests.conformance.groups import TIMEOUT_S
from tests.reliability.raw import wait_until

NewName = Callable[[], str]


def producer(broker: EmbeddedBroker, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})


def consumer(broker: EmbeddedBroker, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **settings,
        }
    )


_admins: dict[str, AdminClient] = {}


def admin(broker: EmbeddedBroker) -> AdminClient:
    """One for all tests: a client that is collected takes its futures with it."""
    if broker.bootstrap_servers not in _admins:
        _admins[broker.bootstrap_servers] = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return _admins[broker.bootstrap_servers]


def create(broker: EmbeddedBroker, name: str, partitions: int = 1, **config: str) -> None:
    topic = NewTopic(name, partitions, config={key.replace("_", "."): value for key, value in config.items()})
    for future in admin(broker).create_topics([topic]).values():
        future.result(60)


def send(sender: Producer, topic: str, count: int, **fields: object) -> list[object]:
    reports: list[object] = []
    for number in range(count):
        sender.produce(topic, b"v%d" % number, on_delivery=lambda error, message: reports.append(error), **fields)
    assert sender.flush(60) == 0
    return reports


def read(
    broker: EmbeddedBroker,
    topic: str,
    count: int,
    offset: int = OFFSET_BEGINNING,
    partition: int = 0,
    **settings: object,
) -> list:
    reader = consumer(broker, **settings)
    try:
        reader.assign([TopicPartition(topic, partition, offset)])
        messages: list = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(messages) < count and time.monotonic() < deadline:
            messages += reader.consume(count - len(messages), 0.5)
        for message in messages:
            assert message.error() is None
        return messages
    finally:
        reader.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(shared_broker: EmbeddedBroker, new_topic: NewName, codec: str) -> None:
    topic = new_topic()
    reports = send(producer(shared_broker, **{"compression.type": codec, "linger.ms": 20}), topic, 500)
    assert reports == [None] * 500
    assert [message.value() for message in read(shared_broker, topic, 500)] == [b"v%d" % n for n in range(500)]
    assert stored_codecs(shared_broker, topic) == {codec}, "the producer did not compress as it was told to"


def stored_codecs(broker: EmbeddedBroker, topic: str) -> set[str]:
    """The codecs of the batches on disk: librdkafka compresses only where it believes the broker able to."""
    folders = [Path(broker.data)] if isinstance(broker, EmbeddedBroker) else sorted(broker.folder.glob("node-?"))
    content = Path(f"{folders[0]}/{topic}-0/00000000000000000000.log").read_bytes()
    return {header.codec.name.lower() for _, header in batch.iterate(content)}


def test_keys_headers_and_timestamps(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    send(producer(shared_broker), topic, 1, key=b"k\x00ey", headers=headers, timestamp=1_700_000_000_123)
    (message,) = read(shared_broker, topic, 1)
    assert message.key() == b"k\x00ey"
    assert message.headers() == headers
    assert message.timestamp() == (1, 1_700_000_000_123)
    assert message.offset() == 0


def test_null_values_and_large_messages(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    sender = producer(shared_broker)
    sender.produce(topic, None, key=b"tombstone")
    sender.produce(topic, b"x" * 900_000)
    assert sender.flush(60) == 0
    first, second = read(shared_broker, topic, 2)
    assert first.value() is None
    assert len(second.value()) == 900_000


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(shared_broker: EmbeddedBroker, new_topic: NewName, acks: str) -> None:
    topic = new_topic()
    create(shared_broker, topic)
    send(producer(shared_broker, acks=acks), topic, 10)
    assert len(read(shared_broker, topic, 10)) == 10


def test_an_idempotent_producer_keeps_order(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    sender = producer(shared_broker, **{"enable.idempotence": True, "batch.num.messages": 7, "linger.ms": 1})
    assert send(sender, topic, 1000) == [None] * 1000
    assert [message.value() for message in read(shared_broker, topic, 1000)] == [b"v%d" % n for n in range(1000)]


def test_keys_choose_partitions_as_kafka_does(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    create(shared_broker, topic, partitions=7)
    sender = producer(shared_broker, partitioner="murmur2_random")
    placed: dict[bytes, int] = {}
    for key in (b"21", b"foobar", b"", b"a-little-bit-long-string"):
        sender.produce(
            topic, b"", key=key, on_delivery=lambda error, m, key=key: placed.__setitem__(key, m.partition())
        )
    sender.flush(60)
    from barnabas.wire.murmur2 import partition_for_key

    assert placed == {key: partition_for_key(key, 7) for key in placed}


def test_earliest_latest_and_timestamps(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    sender = producer(shared_broker)
    for number in range(10):
        sender.produce(topic, b"%d" % number, timestamp=1_700_000_000_000 + number * 1000)
        sender.flush(60)
    reader = consumer(shared_broker)
    place = TopicPartition(topic, 0)
    assert reader.get_watermark_offsets(place, timeout=60) == (0, 10)
    by_time = reader.offsets_for_times([TopicPartition(topic, 0, 1_700_000_004_500)], timeout=60)
    assert by_time[0].offset == 5
    after = reader.offsets_for_times([TopicPartition(topic, 0, 1_900_000_000_000)], timeout=60)
    assert after[0].offset == OFFSET_END
    reader.close()
    listed = admin(shared_broker).list_offsets({place: OffsetSpec.max_timestamp()})
    assert listed[place].result(60).offset == 9


def test_a_consumer_waits_for_new_messages(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    create(shared_broker, topic)
    reader = consumer(shared_broker, **{"fetch.wait.max.ms": 300_000, "socket.timeout.ms": 300_000})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert reader.poll(0.5) is None
    send(producer(shared_broker), topic, 1)
    message = reader.poll(60)
    assert message is not None, "the parked fetch was not woken"
    assert message.value() == b"v0"
    reader.close()


def test_offset_out_of_range_resets_or_fails(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    send(producer(shared_broker), topic, 3)
    assert read(shared_broker, topic, 1, offset=99, **{"auto.offset.reset": "earliest"})[0].offset() == 0
    reader = consumer(shared_broker, **{"auto.offset.reset": "error"})
    reader.assign([TopicPartition(topic, 0, 99)])
    message = None
    deadline = time.monotonic() + TIMEOUT_S
    while message is None and time.monotonic() < deadline:
        message = reader.poll(1)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    reader.close()


def test_topics_are_administered(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    client = admin(shared_broker)
    create(shared_broker, topic, partitions=2, retention_ms="1000")
    wait_until(lambda: topic in client.list_topics(timeout=60).topics, "every broker knows the topic")
    metadata = client.list_topics(topic, timeout=60)
    assert set(metadata.topics[topic].partitions) == {0, 1}
    assert metadata.controller_id in metadata.brokers
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    wait_until(lambda: len(client.list_topics(topic, timeout=60).topics[topic].partitions) == 5, "partitions are added")
    client.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in client.list_topics(timeout=60).topics, "the topic is gone")


def test_settings_are_described_and_changed(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    client = admin(shared_broker)
    create(shared_broker, topic, retention_ms="1000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    wait_until(lambda: topic in client.list_topics(timeout=60).topics, "every broker knows the topic")
    described = client.describe_configs([resource])[resource].result(60)
    assert described["retention.ms"].value == "1000"
    assert described["segment.bytes"].is_default
    change = ConfigResource(ResourceType.TOPIC, topic)
    change.add_incremental_config(ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET))
    client.incremental_alter_configs([change])[change].result(60)
    wait_until(
        lambda: client.describe_configs([resource])[resource].result(60)["retention.ms"].value == "2000",
        "the setting is changed",
    )
    broker = ConfigResource(ResourceType.BROKER, str(client.list_topics(timeout=60).controller_id))
    assert client.describe_configs([broker])[broker].result(60)["log.retention.ms"].value == "604800000"


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("ok-name-a", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("ok-name-b", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("ok-name-c", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("ok-name-d", 100_000, 1), KafkaError.INVALID_PARTITIONS),
    ],
)
def test_what_cannot_be_created_is_refused(shared_broker: EmbeddedBroker, topic: NewTopic, code: int) -> None:
    (future,) = admin(shared_broker).create_topics([topic]).values()
    with pytest.raises(KafkaException) as refused:
        future.result(60)
    assert refused.value.args[0].code() == code


def test_a_topic_is_created_once(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    create(shared_broker, topic)
    with pytest.raises(KafkaException) as refused:
        create(shared_broker, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_too_large_messages_are_refused(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    create(shared_broker, topic, max_message_bytes="1000")
    (error,) = send(producer(shared_broker), topic, 1, headers={"h": b"x" * 2000})
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_records_are_deleted(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    send(producer(shared_broker), topic, 10)
    place = TopicPartition(topic, 0, 6)
    deleted = admin(shared_broker).delete_records([place])[TopicPartition(topic, 0)].result(60)
    assert deleted.low_watermark == 6
    assert read(shared_broker, topic, 1)[0].offset() == 6


def test_the_broker_can_recompress(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    create(shared_broker, topic, compression_type="zstd")
    send(producer(shared_broker, **{"compression.type": "gzip", "linger.ms": 20}), topic, 100)
    assert len(read(shared_broker, topic, 100)) == 100


def test_log_append_time(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    create(shared_broker, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    send(producer(shared_broker), topic, 1, timestamp=5)
    kind, stamp = read(shared_broker, topic, 1)[0].timestamp()
    assert kind == 2
    assert before <= stamp <= int(time.time() * 1000)


def test_a_compacted_topic_wants_keys(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    create(shared_broker, topic, cleanup_policy="compact")
    (error,) = send(producer(shared_broker), topic, 1)
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    assert send(producer(shared_broker), topic, 1, key=b"k") == [None]


def test_records_at_fault_are_named_and_the_others_can_be_sent_again(
    shared_broker: EmbeddedBroker, new_topic: NewName
) -> None:
    def sent(topic: str, **per_message: Callable[[int], object]) -> list[int]:
        """How each of 100 messages of one batch ended."""
        codes = [0] * 100

        def report(number: int, error: KafkaError | None) -> None:
            codes[number] = error.code() if error else 0

        one_batch = producer(shared_broker, **{"linger.ms": 60_000, "batch.num.messages": 100})
        for number in range(100):
            fields = {name: make(number) for name, make in per_message.items()}
            one_batch.produce(topic, b"value", on_delivery=lambda e, _, n=number: report(n, e), **fields)
        one_batch.flush(TIMEOUT_S)
        return codes

    # librdkafka tells a record that is named from those that only were in its batch, whatever the batch's error.
    expected = [KafkaError._INVALID_DIFFERENT_RECORD if n % 10 else KafkaError.INVALID_RECORD for n in range(100)]
    compacted, timed = new_topic(), new_topic()
    create(shared_broker, compacted, **{"cleanup.policy": "compact"})
    assert sent(compacted, key=lambda n: b"key" if n % 10 else None) == expected
    create(shared_broker, timed, **{"message.timestamp.after.max.ms": "1000"})
    now = int(time.time() * 1000)
    assert sent(timed, timestamp=lambda n: now if n % 10 else now + 10_000_000) == expected
