"""Group members of confluent-kafka, polled together until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 60.0

Place = tuple[str, int]


class Member:
    """A consumer that remembers what it was given, what was taken, and what it read."""

    def __init__(self, bootstrap_servers: str, group: str, topics: Sequence[str], **settings: object) -> None:
        self.owned: set[Place] = set()
        self.given: list[Place] = []
        self.taken: list[Place] = []
        self.rebalances = 0
        self.read: list[tuple[int, int]] = []
        """(partition, offset)."""
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self._cooperative = given.get("partition.assignment.strategy") == "cooperative-sticky"
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 100,
                "fetch.wait.max.ms": 20,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
                **given,
            }
        )
        self.consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(part.topic, part.partition) for part in partitions]
        self.rebalances += 1
        self.given += places
        self.owned |= set(places)
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(part.topic, part.partition) for part in partitions]
        self.taken += places
        self.owned -= set(places)
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._revoked(consumer, partitions)

    def poll(self) -> None:
        message = self.consumer.poll(0.01)
        while message is not None:
            if message.error() is None:
                self.read.append((message.partition(), message.offset()))
            message = self.consumer.poll(0)

    def close(self) -> None:
        self.consumer.close()


def poll_until(members: Sequence[Member], condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {what}: {[m.owned for m in members]}"
        for member in members:
            member.poll()


def shared_out(members: Sequence[Member], places: set[Place]) -> bool:
    """Whether every place has one owner, and every member about as many as the others."""
    owned = [place for member in members for place in member.owned]
    sizes = [len(member.owned) for member in members]
    return sorted(owned) == sorted(places) and max(sizes) - min(sizes) <= 1


def create_topic(bootstrap_servers: str, name: str, partitions: int) -> set[Place]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, partitions)]).values():
        future.result(60)
    return {(name, number) for number in range(partitions)}


def fill(bootstrap_servers: str, topic: str, partitions: int, count: int) -> None:
    """``count`` messages into each partition."""
    sender = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(count):
        for partition in range(partitions):
            sender.produce(topic, b"v%d" % number, partition=partition, timestamp=1_700_000_000_000 + 1000 * number)
    assert sender.flush(60) == 0
