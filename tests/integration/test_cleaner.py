"""A broker that compacts, as clients and operators see it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import EmbeddedBroker
from tests.integration.cleaning import is_clean
from tests.reliability.raw import wait_until

SETTINGS = {"log.cleaner.backoff.ms": 50, "log.retention.check.interval.ms": 200, "log.segment.delete.delay.ms": 0}
NOISE = random.Random(1).randbytes(150_000)  # so that segments fill up with every codec
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(params=["on disk", "in memory"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    data = str(tmp_path / "data") if request.param == "on disk" else None
    with EmbeddedBroker(data=data, settings=SETTINGS) as running:
        yield running


def create(broker: EmbeddedBroker, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    named = {key.replace("_", "."): value for key, value in config.items()}
    created = admin.create_topics([NewTopic(topic, 1, 1, config={**COMPACTED, **named})])
    created[topic].result(60)


def producer(broker: EmbeddedBroker, **config: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **config})


def overwrite(sender: Producer, topic: str, rounds: int, *, keys: int = 50, size: int = 2000) -> dict[bytes, bytes]:
    latest = {}
    for number in range(rounds):
        for key in range(keys):
            latest[b"key-%d" % key] = value = b"%d-%d-" % (number, key) + NOISE[number : number + size]
            sender.produce(topic, value, b"key-%d" % key)
        sender.poll(0)
    assert sender.flush(60) == 0
    return latest


def read_all(broker: EmbeddedBroker, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "nothing more came"
        if message.error() is None:
            found.append((message.offset(), message.key(), message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_consumer_sees_the_latest_of_every_key(broker: EmbeddedBroker, codec: str) -> None:
    create(broker, "table")
    sender = producer(broker, **{"compression.type": codec, "batch.size": 50_000, "enable.idempotence": True})
    latest = overwrite(sender, "table", 100)
    end = overwrite_with_noise(sender, "table")
    wait_until(is_clean(broker, "table"), "the topic was not compacted")
    found = read_all(broker, "table")
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    values = {key: value for _, key, value in found}
    assert {key: value for key, value in values.items() if key.startswith(b"key-")} == latest
    assert values[b"noise"] == end
    assert len(found) < 2000


def overwrite_with_noise(sender: Producer, topic: str) -> bytes:
    """Rolls the active segment, so that everything before can be cleaned."""
    value = b""
    for number in range(12):
        value = b"%d" % number + NOISE
        sender.produce(topic, value, b"noise")
        sender.flush(60)
    return value


def test_tombstones_disappear(broker: EmbeddedBroker) -> None:
    create(broker, "forgotten", delete_retention_ms="0")
    sender = producer(broker)
    overwrite(sender, "forgotten", 15)
    for key in range(0, 50, 2):
        sender.produce("forgotten", None, b"key-%d" % key)
    assert sender.flush(60) == 0

    def is_gone() -> bool:
        overwrite_with_noise(sender, "forgotten")  # a cleaning needs something new to clean
        return all(value is not None for _, _, value in read_all(broker, "forgotten"))

    wait_until(is_gone, "the tombstones stayed")
    keys = {key for _, key, _ in read_all(broker, "forgotten")}
    assert keys == {b"noise"} | {b"key-%d" % key for key in range(1, 50, 2)}


def test_compact_and_delete_does_both(broker: EmbeddedBroker) -> None:
    create(broker, "both", cleanup_policy="compact,delete", retention_ms="1000")
    sender = producer(broker)
    overwrite(sender, "both", 30)
    overwrite_with_noise(sender, "both")

    def is_deleted() -> bool:
        overwrite_with_noise(sender, "both")
        return {key for _, key, _ in read_all(broker, "both")} == {b"noise"}

    wait_until(is_deleted, "what was compacted was not deleted after its time")


def test_a_restart_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedBroker(data=str(data), settings=SETTINGS) as broker:
        create(broker, "kept")
        sender = producer(broker)
        latest = overwrite(sender, "kept", 60)
        overwrite_with_noise(sender, "kept")
        wait_until(is_clean(broker, "kept"), "the topic was not compacted")
        wait_until((data / "cleaner-offset-checkpoint").exists, "no checkpoint was written")
        found = read_all(broker, "kept")
    version, count, row = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    assert (version, count) == ("0", "1")
    assert row.startswith("kept 0 ")
    assert int(row.split()[2]) > 0
    with EmbeddedBroker(data=str(data), settings=SETTINGS) as broker:
        assert read_all(broker, "kept") == found
        assert {key: value for _, key, value in found if key != b"noise"} == latest


def test_a_topic_deleted_and_made_again_while_it_is_cleaned(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(5):
        create(broker, "again")
        sender = producer(broker)
        overwrite(sender, "again", 30)
        admin.delete_topics(["again"])["again"].result(60)
    create(broker, "again")
    sender = producer(broker)
    latest = overwrite(sender, "again", 60)
    overwrite_with_noise(sender, "again")
    wait_until(is_clean(broker, "again"), "the topic was not compacted")
    assert {key: value for _, key, value in read_all(broker, "again") if key != b"noise"} == latest


def test_committed_offsets_stay_small_and_survive(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {
        **SETTINGS,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 1 << 20,
        "log.cleaner.min.cleanable.ratio": 0.01,
    }
    partitions = 100
    with EmbeddedBroker(data=str(data), settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("read", partitions, 1)])["read"].result(60)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "counted"})
        for number in range(1, 1001):
            offsets = [TopicPartition("read", partition, number) for partition in range(partitions)]
            consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        log = data / "__consumer_offsets-0"
        written = 1000 * partitions * 60
        wait_until(is_clean(broker, "__consumer_offsets"), "the offsets were not compacted")
        wait_until(lambda: sum(file.stat().st_size for file in log.glob("*.log")) < written / 3, "it is large")
    with EmbeddedBroker(data=str(data), settings=settings) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "counted"})
        found = consumer.committed([TopicPartition("read", partition) for partition in range(partitions)], timeout=60)
        assert {entry.offset for entry in found} == {1000}
        consumer.close()
