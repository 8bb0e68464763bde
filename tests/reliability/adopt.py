"""Kafka's folder in Barnabas and back: ``python -m tests.reliability.adopt`` (Java, and Maven or KAFKA_LIBS).

Kafka is filled with ten topics, all codecs, a compacted topic, settings, committed groups, an idempotent producer and
transactions, one of them open, and stopped. The folder is adopted and served by Barnabas, which must show the same,
let the open transaction be ended, and is written to; then Kafka starts on it again and must show both. Last, Kafka
starts on a folder that only Barnabas ever wrote.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from barnabas.client.wire import Client
from barnabas.model.ids import TopicPartition as Place
from bench.systems import Kafka, unavailable
from tests.reliability.process import BrokerProcess
from tests.reliability.stable_offsets import read_committed, unstable

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUPS = ("readers", "orders", "billing", "my-group")
"""Of both signs: the hash of a name decides where its offsets are kept."""


@dataclass
class Content:
    """What a broker shows of itself."""

    topics: dict[str, int] = field(default_factory=dict)
    records: dict[str, list[tuple[int, int, bytes | None, bytes | None]]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)


def fill(servers: str, mark: str, topics: int = 10) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(f"topic-{n}", 1 + n % 3, 1, config={"retention.ms": str(10**9 + n)}) for n in range(topics - 1)]
    wanted.append(NewTopic("compacted", 2, 1, config={"cleanup.policy": "compact"}))
    known = admin.list_topics(timeout=30).topics
    fresh = [topic for topic in wanted if topic.topic not in known]
    for future in admin.create_topics(fresh).values() if fresh else ():
        future.result(30)
    for number, codec in enumerate(CODECS):
        sender = Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "enable.idempotence": number % 2 == 0,
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        for topic in wanted:
            for count in range(40):
                key, value = f"key-{count % 7}".encode(), f"{mark}-{codec}-{count}".encode() * 3
                sender.produce(topic.topic, value, key=key, headers={"codec": codec})
        assert sender.flush(60) == 0
    for number, group in enumerate(GROUPS):
        settings = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        reader = Consumer(settings)
        places = [TopicPartition(f"topic-{n}", 0, 5 + number + len(mark)) for n in range(3)]
        patiently(lambda reader=reader, places=places: reader.commit(offsets=places, asynchronous=False))
        reader.close()


def leave_open(servers: str, mark: str) -> None:
    """Ended transactions, and one that its producer leaves open."""
    settings = {"bootstrap.servers": servers, "transaction.timeout.ms": 900_000, "log_level": 0}
    producer = Producer({**settings, "transactional.id": "worker"})
    producer.init_transactions(60)
    for ended in ("commit", "abort", "open"):
        producer.begin_transaction()
        for count in range(20):
            producer.produce("topic-0", f"{mark}-{ended}-{count}".encode(), partition=0)
        assert producer.flush(60) == 0
        if ended == "commit":
            producer.commit_transaction(60)
        elif ended == "abort":
            producer.abort_transaction(60)


def take_over(servers: str, mark: str) -> None:
    """The transaction that was left open holds readers back; its new owner ends it."""
    with Client(servers) as client:
        place = [Place("topic-0", 0)]
        assert unstable(client, place), "the transaction that was left open is not open any more"
        settings = {"bootstrap.servers": servers, "transactional.id": "worker", "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("topic-0", f"{mark}-commit-taken-over".encode(), partition=0)
        producer.commit_transaction(60)
        patiently_until(lambda: not unstable(client, place))
    seen = [message.value() or b"" for message in read_committed(servers, "topic-0")[0]]
    transactional = [value for value in seen if value.count(b"-") >= 2 and value.split(b"-")[1] in (b"abort", b"open")]
    assert not transactional, f"aborted records are read: {transactional[:3]}"
    assert sum(value.startswith(mark.encode() + b"-commit-taken-over") for value in seen) == 1
    print(f"{mark}: the open transaction was ended by its new owner, readers go on", flush=True)


def patiently_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def look(servers: str) -> Content:
    content = Content()
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_topics(timeout=30).topics
    content.topics = {name: len(topic.partitions) for name, topic in listed.items() if not name.startswith("__")}
    for name in content.topics:
        resource = ConfigResource(ResourceType.TOPIC, name)
        described = admin.describe_configs([resource])[resource].result(30)
        for key in ("retention.ms", "cleanup.policy"):
            content.settings[f"{name} {key}"] = described[key].value
    for name, count in content.topics.items():
        content.records[name] = read(servers, name, count)
    for group in GROUPS:
        reader = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
        places = [TopicPartition(f"topic-{n}", 0) for n in range(3)]
        content.offsets[group] = {place.topic: place.offset for place in reader.committed(places, timeout=30)}
        reader.close()
    return content


def read(servers: str, topic: str, partitions: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    settings = {"group.id": "look", "enable.auto.commit": False, "log_level": 0, "isolation.level": "read_uncommitted"}
    reader = Consumer({"bootstrap.servers": servers, **settings})
    ends = {p: end_of(reader, TopicPartition(topic, p)) for p in range(partitions)}
    reader.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    at = dict.fromkeys(ends, 0)
    deadline = time.monotonic() + 60
    while any(at[p] < ends[p] for p in ends):
        for place in reader.position([TopicPartition(topic, p) for p in ends]):
            at[place.partition] = max(at[place.partition], place.offset)  # past markers too
        assert time.monotonic() < deadline, f"{topic} could not be read to its end"
        for message in reader.consume(1000, 0.5):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset(), message.key(), message.value()))
            at[message.partition()] = message.offset() + 1
    reader.close()
    return sorted(found)  # type: ignore[type-var]


def end_of(reader: Consumer, place: TopicPartition) -> int:
    return int(patiently(lambda: reader.get_watermark_offsets(place, timeout=10))[1])


def patiently(ask: Callable[[], Any]) -> Any:
    """A broker that has just started may not lead or coordinate yet."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def same(before: Content, after: Content, what: str) -> None:
    for part in ("topics", "settings", "offsets", "records"):
        assert getattr(before, part) == getattr(after, part), f"{what}: {part} differ"
    count = sum(map(len, after.records.values()))
    print(f"{what}: {len(after.topics)} topics, {count} records, {len(after.offsets)} groups: the same", flush=True)


def run() -> None:
    with Kafka() as kafka:
        kafka.start()
        fill(kafka.servers, "kafka")
        leave_open(kafka.servers, "kafka")
        written = look(kafka.servers)
        kafka.stop()
        data = kafka.folder / "data"
        subprocess.run([sys.executable, "-m", "barnabas", "adopt", str(data)], check=True)
        with BrokerProcess(data) as broker:
            same(written, look(broker.bootstrap_servers), "Barnabas on Kafka's folder")
            take_over(broker.bootstrap_servers, "barnabas")
            fill(broker.bootstrap_servers, "barnabas")
            leave_open(broker.bootstrap_servers, "barnabas")
            added = look(broker.bootstrap_servers)
            assert broker.stop() == 0
        kafka.start()
        same(added, look(kafka.servers), "Kafka on the adopted folder")
        take_over(kafka.servers, "kafka-again")
    with tempfile.TemporaryDirectory(prefix="barnabas-adopt-") as folder, Kafka() as kafka:
        with BrokerProcess(Path(folder) / "data") as broker:
            fill(broker.bootstrap_servers, "own")
            own = look(broker.bootstrap_servers)
            assert broker.stop() == 0
        (Path(folder) / "data").rename(kafka.folder / "data")
        kafka.start()
        same(own, look(kafka.servers), "Kafka on Barnabas's folder")


def main() -> None:
    reason = unavailable()
    if reason is not None:
        raise SystemExit(f"skipped: {reason}")
    run()


if __name__ == "__main__":
    main()
