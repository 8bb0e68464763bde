"""Several data folders: partitions are spread over them, and one that fails takes only its own with it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import EmbeddedBroker


def send(servers: str, partition: int, *, patience_ms: int = 60_000) -> object:
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": patience_ms, "log_level": 0})
    producer.produce("t", b"x", partition=partition, on_delivery=lambda error, message: outcomes.append(error))
    producer.flush(120)
    return outcomes[0]


def test_a_folder_that_fails_goes_offline_and_the_rest_serve_on(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("first", "second")]
    with EmbeddedBroker(data=",".join(folders)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(60)
        for partition in range(4):
            assert send(broker.bootstrap_servers, partition) is None
        places = {p: next(f for f in folders if (Path(f) / f"t-{p}").exists()) for p in range(4)}
        assert set(places.values()) == set(folders)
        lost = next(p for p, folder in places.items() if folder == folders[1])
        fail(broker, lost)
        for partition, folder in places.items():
            if folder == folders[0]:
                assert send(broker.bootstrap_servers, partition) is None
            else:
                error = send(broker.bootstrap_servers, partition, patience_ms=1500)
                assert error is not None
                assert error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError.KAFKA_STORAGE_ERROR)
        kept = next(p for p, folder in places.items() if folder == folders[0])
        reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
        reader.assign([TopicPartition("t", kept, 0)])
        message = reader.poll(60)
        assert message is not None
        assert message.error() is None
        reader.close()
    with EmbeddedBroker(data=",".join(folders)) as broker:
        for partition in range(4):
            assert send(broker.bootstrap_servers, partition) is None, "a restart brings the folder back"


def fail(broker: EmbeddedBroker, partition: int) -> None:
    """As a failed fsync would; only the disk can make one, so the log is told directly, on the broker's loop."""
    server, loop = broker._server, broker._loop
    assert server is not None
    node = server.node
    assert isinstance(loop, asyncio.AbstractEventLoop)
    done = threading.Event()

    def tell() -> None:
        found = node.broker.partitions.get("t", partition)
        assert found is not None
        found.log.fail("a sync failed")
        done.set()

    loop.call_soon_threadsafe(tell)
    assert done.wait(60)
