"""The basics without Linux-only features and native code, on asyncio's own loop, and in memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from barnabas.testing import EmbeddedBroker
from barnabas.wire import walk
from tests.integration.abuse import unharmed
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import FETCH_VERSION, Raw, batch, fetch_request, frame, wait_until

PORTABLE = ("--set", "barnabas.portable=true", "--set", "barnabas.event.loop=asyncio")
WAYS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "portable": (True, PORTABLE),
    "portable durable": (True, (*PORTABLE, "--durable")),
    "memory": (False, ()),
    "portable memory": (False, PORTABLE),
}


@pytest.fixture(params=WAYS, ids=lambda way: way.replace(" ", "-"))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    on_disk, arguments = WAYS[request.param]
    with BrokerProcess(tmp_path / "data" if on_disk else None, *arguments) as process:
        yield process


def create(broker: BrokerProcess, name: str, partitions: int = 1, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    for future in admin.create_topics([topic]).values():
        future.result(60)
    return admin


def send(broker: BrokerProcess, topic: str, messages: list[bytes], **settings: object) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 2, **settings})

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for value in messages:
        producer.produce(topic, value, key=b"k", partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not failures, failures


def read(broker: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[bytes | None]:
    settings = {"group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        found = consumer.consume(count, 20)
        assert all(message.error() is None for message in found)
        return [message.value() for message in found]
    finally:
        consumer.close()


def test_what_is_in_force_is_said(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *PORTABLE) as broker:
        wait_until(lambda: "validation" in broker.output, "everything is said")
        assert "(Python" in broker.output


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec(broker: BrokerProcess, codec: str) -> None:
    create(broker, "t")
    messages = [b"%d " % number + b"x" * (number % 300) for number in range(2000)]
    send(broker, "t", messages, **{"compression.type": codec, "enable.idempotence": True})
    assert read(broker, "t", len(messages)) == messages
    assert read(broker, "t", 10, 990) == messages[990:1000]


def test_large_fetches(broker: BrokerProcess) -> None:
    """Above the limit to which file ranges are copied."""
    create(broker, "large")
    messages = [os.urandom(700_000) for _ in range(12)]
    send(broker, "large", messages)
    assert read(broker, "large", len(messages)) == messages


def test_recompression_and_append_time(broker: BrokerProcess) -> None:
    create(broker, "changed", compression_type="zstd", message_timestamp_type="LogAppendTime")
    messages = [b"value %d" % number for number in range(500)]
    send(broker, "changed", messages, **{"compression.type": "gzip"})
    assert read(broker, "changed", len(messages)) == messages


def test_administration(broker: BrokerProcess) -> None:
    admin = create(broker, "managed", 2, retention_ms="5000")
    for future in admin.create_partitions([NewPartitions("managed", 4)]).values():
        future.result(60)
    assert len(admin.list_topics(timeout=60).topics["managed"].partitions) == 4
    resource = ConfigResource(ResourceType.TOPIC, "managed")
    assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "5000"
    send(broker, "managed", [b"one", b"two", b"three"])
    for future in admin.delete_records([TopicPartition("managed", 0, 2)]).values():
        assert future.result(60).low_watermark == 2
    for future in admin.delete_topics(["managed"]).values():
        future.result(60)
    wait_until(lambda: "managed" not in admin.list_topics(timeout=60).topics, "the topic is gone")


def test_batches_that_lie_are_refused(broker: BrokerProcess) -> None:
    with Raw(broker.port) as client:
        client.create("lies")
        whole = bytearray(batch(b"one", b"two"))
        whole[-1] ^= 1
        assert client.produce("lies", bytes(whole)).error_code == 2


def test_a_peer_that_never_reads_costs_little(broker: BrokerProcess) -> None:
    with Raw(broker.port) as client:
        client.create("large")
        for _ in range(30):
            assert client.produce("large", batch(os.urandom(1_000_000))).error_code == 0
    before = broker.resident_bytes
    with unharmed(broker):
        deaf = []
        asks = b"".join(frame(fetch_request("large", max_bytes=50 << 20), FETCH_VERSION, n) for n in range(9))
        for _ in range(10):
            attacker = Raw(broker.port)
            attacker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            attacker.send_bytes(asks)
            deaf.append(attacker)
        with Raw(broker.port) as other:
            assert other.fetch("large", 5).error_code == 0
        assert broker.resident_bytes - before < 64 << 20
        for attacker in deaf:
            attacker.close()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_what_was_written_survives(tmp_path: Path, clean: bool) -> None:
    with BrokerProcess(tmp_path / "data", *PORTABLE) as broker:
        create(broker, "kept", 3)
        messages = [b"%d" % number for number in range(5000)]
        send(broker, "kept", messages, **{"enable.idempotence": True})
        if clean:
            assert broker.stop() == 0
        else:
            broker.kill()
        broker.start()
        assert read(broker, "kept", len(messages)) == messages


@pytest.mark.skipif(not walk.NATIVE_AVAILABLE, reason="the extension is not built")
def test_a_portable_broker_inside_a_process_leaves_its_host_alone() -> None:
    assert walk.NATIVE
    with EmbeddedBroker(settings={"barnabas.portable": True}) as portable, EmbeddedBroker():
        with Raw(portable.port) as client:
            client.create("t")
            assert client.produce("t").error_code == 0
        assert walk.NATIVE
    assert walk.NATIVE
