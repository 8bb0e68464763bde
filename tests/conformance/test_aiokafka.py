"""aiokafka against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from barnabas.testing import EmbeddedBroker

NewName = Callable[[], str]


async def send(broker: EmbeddedBroker, topic: str, values: list[bytes], **settings: object) -> list:
    sender = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
    await sender.start()
    try:
        futures = [await sender.send(topic, value, key=b"k", partition=0) for value in values]
        return [await future for future in futures]
    finally:
        await sender.stop()


async def read(broker: EmbeddedBroker, topic: str, count: int, start: int = 0, **settings: object) -> list:
    reader = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None, **settings)
    await reader.start()
    try:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek(TopicPartition(topic, 0), start)
        return [await reader.getone() for _ in range(count)]
    finally:
        await reader.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec(shared_broker: EmbeddedBroker, new_topic: NewName, codec: str | None) -> None:
    topic = new_topic()
    values = [b"v%d" % n for n in range(200)]
    await send(shared_broker, topic, values, compression_type=codec, linger_ms=20)
    assert [message.value for message in await read(shared_broker, topic, 200)] == values


async def test_idempotent_producer(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    told = await send(shared_broker, new_topic(), [b"%d" % n for n in range(300)], enable_idempotence=True)
    assert [one.offset for one in told] == list(range(300))


async def test_headers_and_timestamps(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    sender = AIOKafkaProducer(bootstrap_servers=shared_broker.bootstrap_servers)
    await sender.start()
    await sender.send_and_wait(topic, b"v", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
    await sender.stop()
    (message,) = await read(shared_broker, topic, 1)
    assert message.headers == (("h", b"1"),)
    assert message.timestamp == 1_700_000_000_000


async def test_offsets(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    await send(shared_broker, topic, [b"x"] * 4)
    place = TopicPartition(topic, 0)
    reader = AIOKafkaConsumer(bootstrap_servers=shared_broker.bootstrap_servers, group_id=None)
    await reader.start()
    assert await reader.beginning_offsets([place]) == {place: 0}
    assert await reader.end_offsets([place]) == {place: 4}
    assert (await reader.offsets_for_times({place: 0}))[place].offset == 0
    await reader.stop()


async def test_out_of_range(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    await send(shared_broker, topic, [b"x"])
    with pytest.raises(OffsetOutOfRangeError):
        await read(shared_broker, topic, 1, start=50, auto_offset_reset="none")


async def test_topics(shared_broker: EmbeddedBroker, new_topic: NewName) -> None:
    topic = new_topic()
    client = AIOKafkaAdminClient(bootstrap_servers=shared_broker.bootstrap_servers)
    await client.start()
    try:
        await client.create_topics([NewTopic(topic, 3, 1, topic_configs={"max.message.bytes": "500"})])
        while topic not in await client.list_topics():
            await asyncio.sleep(0.01)  # another broker than the one that was asked to create it
        with pytest.raises(MessageSizeTooLargeError):
            await send(shared_broker, topic, [b"x" * 1000])
        await client.delete_topics([topic])
        while topic in await client.list_topics():
            await asyncio.sleep(0.01)
    finally:
        await client.close()
