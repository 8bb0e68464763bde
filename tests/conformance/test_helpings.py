"""Clients on the broker's machine get few partitions in a reply, but all of them in the end, and side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from barnabas.broker.handlers import fetch
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import Raw, batch

PARTITIONS = range(4)
MESSAGES = 40
"""Of each partition, one in a batch."""
BATCH = batch(b"v" * 10_000)
ONE_FETCH = 2 * len(BATCH)
"""Of a partition, and more than makes a reply full."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"barnabas.fetch.local.bytes": str(len(BATCH))}
    with pytest.MonkeyPatch.context() as patch, EmbeddedBroker(settings=settings) as broker:
        patch.setattr(fetch, "PROMPT_MS", 1 << 40)  # whatever time the machine takes
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with Raw(broker.port) as client:
        client.create(name, len(PARTITIONS))
        for partition in PARTITIONS:
            for _ in range(MESSAGES):
                assert client.produce(name, BATCH, partition=partition).error_code == 0
    return name


def check(read: Iterable[tuple[int, int]]) -> None:
    """(partition, offset) of each message as it came."""
    have: Counter[int] = Counter()
    begun_when_the_first_was_done = 0
    for partition, offset in read:
        assert offset == have[partition]
        have[partition] += 1
        if have[partition] == MESSAGES and not begun_when_the_first_was_done:
            begun_when_the_first_was_done = len(have)
    assert have == dict.fromkeys(PARTITIONS, MESSAGES)
    assert begun_when_the_first_was_done == len(PARTITIONS)


def test_confluent_kafka(broker: EmbeddedBroker, topic: str) -> None:
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": ONE_FETCH,
            "message.max.bytes": ONE_FETCH,
        }
    )
    try:
        reader.assign([ConfluentPartition(topic, number, 0) for number in PARTITIONS])
        messages = [reader.poll(60) for _ in range(len(PARTITIONS) * MESSAGES)]
    finally:
        reader.close()
    assert all(message is not None and message.error() is None for message in messages)
    check((message.partition(), message.offset()) for message in messages if message is not None)


def test_kafka_python(broker: EmbeddedBroker, topic: str) -> None:
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        consumer_timeout_ms=60_000,
        enable_auto_commit=False,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=ONE_FETCH,
    )
    try:
        reader.assign([PythonPartition(topic, number) for number in PARTITIONS])
        messages = [next(reader) for _ in range(len(PARTITIONS) * MESSAGES)]
    finally:
        reader.close()
    check((message.partition, message.offset) for message in messages)


async def test_aiokafka(broker: EmbeddedBroker, topic: str) -> None:
    reader = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=ONE_FETCH,
    )
    await reader.start()
    try:
        reader.assign([AioPartition(topic, number) for number in PARTITIONS])
        messages = [await reader.getone() for _ in range(len(PARTITIONS) * MESSAGES)]
    finally:
        await reader.stop()
    check((message.partition, message.offset) for message in messages)
