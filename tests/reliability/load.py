"""Load that records what was acknowledged, and a check that all of it is there.

Each partition gets the numbers 0, 1, 2 … from one idempotent producer; what the broker acknowledges is remembered with
its offset. ``verify`` then reads the logs from the beginning: every acknowledged number is where it was acknowledged,
none is there twice, and they are in order.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

TOPIC = "numbers"


@dataclass
class Promises:
    """Partition -> number -> the offset at which it was acknowledged."""

    acknowledged: list[dict[int, int]]
    topics: dict[str, str] = field(default_factory=dict)
    """Topics whose creation was acknowledged, with the value of retention.ms given."""

    @property
    def count(self) -> int:
        return sum(len(numbers) for numbers in self.acknowledged)


class Load:
    """Produces on a thread until ``finish``; brokers may die and come back meanwhile."""

    def __init__(
        self, bootstrap_servers: str, partitions: int = 4, *, settings: dict[str, object] | None = None
    ) -> None:
        self.promises = Promises([{} for _ in range(partitions)])
        self._partitions = partitions
        self._next = [0] * partitions
        self._stopping = threading.Event()
        self._failures: list[str] = []
        self._servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
                **(settings or {}),
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        for future in self._admin.create_topics([NewTopic(TOPIC, self._partitions, 1)]).values():
            future.result(30)
        self._thread.start()

    def create_topic(self, name: str, retention_ms: str) -> bool:
        """Remembered only where it was acknowledged."""
        future = self._admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": retention_ms})])[name]
        try:
            future.result(2)
        except (KafkaException, TimeoutError):
            return False
        self.promises.topics[name] = retention_ms
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(self._partitions):
                self._send(partition)
            self._producer.poll(0)
            if len(self._producer) > 5000:
                self._producer.poll(0.01)

    def _send(self, partition: int) -> None:
        number = self._next[partition]
        try:
            self._producer.produce(
                TOPIC, struct.pack(">q", number) + b"." * 92, partition=partition, on_delivery=self._delivered
            )
        except BufferError:
            self._producer.poll(0.05)
            return
        self._next[partition] = number + 1

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(str(error))
            return
        number = struct.unpack_from(">q", message.value())[0]  # type: ignore[attr-defined]
        self.promises.acknowledged[message.partition()][number] = message.offset()  # type: ignore[attr-defined]

    def finish(self) -> Promises:
        """Waits until everything sent is acknowledged."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(120)
        assert left == 0, f"{left} messages were never acknowledged"
        assert not self._failures, f"{len(self._failures)} messages failed: {self._failures[0]}"
        return self.promises

    def abandon(self) -> Promises:
        """What has been acknowledged so far; the rest is not waited for."""
        self._stopping.set()
        self._thread.join()
        snapshot = Promises([dict(numbers) for numbers in self.promises.acknowledged], dict(self.promises.topics))
        self._producer.purge()
        self._producer.flush(5)
        return snapshot


def read_all(bootstrap_servers: str, partitions: int) -> list[list[tuple[int, int]]]:
    """(offset, number) of every record of every partition."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "verify", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        ends = [reader.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in range(partitions)]
        reader.assign([TopicPartition(TOPIC, p, 0) for p in range(partitions)])
        found: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        deadline = time.monotonic() + 120
        while any(len(found[p]) < ends[p] for p in range(partitions)):
            assert time.monotonic() < deadline, "the logs could not be read to their ends"
            for message in reader.consume(10_000, 0.5):
                assert message.error() is None, message.error()
                found[message.partition()].append((message.offset(), struct.unpack_from(">q", message.value())[0]))
        return found
    finally:
        reader.close()


def verify(bootstrap_servers: str, promises: Promises, *, complete: bool = True) -> None:
    """``complete``: the producer saw everything through, so the log holds every number; else the tail may differ."""
    partitions = len(promises.acknowledged)
    for partition, records in enumerate(read_all(bootstrap_servers, partitions)):
        by_offset = dict(records)
        numbers = [number for _, number in records]
        missing = [
            number for number, offset in promises.acknowledged[partition].items() if by_offset.get(offset) != number
        ]
        assert not missing, f"partition {partition}: {len(missing)} acknowledged are lost, the first is {min(missing)}"
        assert numbers == sorted(set(numbers)), f"partition {partition}: duplicates, or out of order"
        if complete:
            assert numbers == list(range(len(numbers))), f"partition {partition}: gaps"
    _verify_topics(bootstrap_servers, promises)


def _verify_topics(bootstrap_servers: str, promises: Promises) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    known = admin.list_topics(timeout=30).topics
    lost = [name for name in promises.topics if name not in known]
    assert not lost, f"acknowledged topics are lost: {lost}"
    for name, retention_ms in list(promises.topics.items())[-5:]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        found = admin.describe_configs([resource])[resource].result(30)
        assert found["retention.ms"].value == retention_ms
