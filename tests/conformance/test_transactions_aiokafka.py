"""Transactions of aiokafka against a real broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from barnabas.testing import EmbeddedBroker
from tests.conformance.groups import create_topic, fill
from tests.reliability.stable_offsets import read_committed, wait_until_stable

NewName = Callable[[], str]

PATIENCE_S = 120
SHORT_MS = 1000


@pytest.fixture
def servers(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap_servers


@contextlib.asynccontextmanager
async def producing(servers: str, transactional_id: str, **settings: object) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id, **settings)
    await asyncio.wait_for(producer.start(), PATIENCE_S)
    try:
        yield producer
    finally:
        await producer.stop()


def values_in(servers: str, topic: str) -> list[bytes]:
    wait_until_stable(servers, [topic], PATIENCE_S)
    return [message.value() or b"" for message in read_committed(servers, topic)[0]]


async def test_commit_and_abort(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    async with producing(servers, topic) as producer:
        for number in range(5):
            if number % 2:
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number)
                await producer.abort_transaction()
            else:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"%d" % number)
        with contextlib.suppress(RuntimeError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"raised")
                raise RuntimeError
    assert values_in(servers, topic) == [b"0", b"2", b"4"]


async def test_its_reader_sees_committed_records_only(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    reader = AIOKafkaConsumer(bootstrap_servers=servers, group_id=None, isolation_level="read_committed")
    await reader.start()
    try:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek(TopicPartition(topic, 0), 0)
        async with producing(servers, topic) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"aborted")
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"committed")
            assert await reader.getmany(timeout_ms=500) == {}
            await producer.commit_transaction()
            assert (await asyncio.wait_for(reader.getone(), PATIENCE_S)).value == b"committed"
    finally:
        await reader.stop()


async def test_a_second_producer_fences_the_first(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    async with producing(servers, topic) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"never committed")
        async with producing(servers, topic) as second:
            async with second.transaction():
                await second.send_and_wait(topic, b"committed")
            with pytest.raises(ProducerFenced):
                await asyncio.wait_for(first.commit_transaction(), PATIENCE_S)
    assert values_in(servers, topic) == [b"committed"]


async def test_a_transaction_that_takes_too_long_is_aborted(servers: str, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(servers, topic, 1)
    async with producing(servers, topic, transaction_timeout_ms=SHORT_MS) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"too late")
        assert await asyncio.to_thread(values_in, servers, topic) == []
        with pytest.raises(KafkaError):
            await asyncio.wait_for(producer.commit_transaction(), PATIENCE_S)


@pytest.mark.parametrize("ending", ["commit", "abort"])
async def test_offsets_are_part_of_the_transaction(servers: str, new_topic: NewName, ending: str) -> None:
    source, target = new_topic(), new_topic()
    create_topic(servers, source, 1)
    create_topic(servers, target, 1)
    fill(servers, source, 1, 5)
    place = TopicPartition(source, 0)
    settings = {"group_id": source, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer(source, bootstrap_servers=servers, isolation_level="read_committed", **settings)
    await consumer.start()
    try:
        messages = [await asyncio.wait_for(consumer.getone(), PATIENCE_S) for _ in range(5)]
        async with producing(servers, target) as producer:
            await producer.begin_transaction()
            for message in messages:
                await producer.send_and_wait(target, message.value)
            await producer.send_offsets_to_transaction({place: 5}, source)
            await (producer.commit_transaction() if ending == "commit" else producer.abort_transaction())
        found = await asyncio.to_thread(values_in, servers, target)
        assert await consumer.committed(place) == (5 if ending == "commit" else None)
    finally:
        await consumer.stop()
    assert len(found) == (5 if ending == "commit" else 0)
