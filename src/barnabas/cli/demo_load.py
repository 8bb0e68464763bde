"""A steady load for ``barnabas cluster demo``: what was acknowledged and when, and what the log holds in the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BUCKET_S = 0.5
FLUSH_S = 60.0
READ_TIMEOUT_S = 30.0


@dataclass(slots=True)
class PartitionTally:
    """Acknowledgements of one partition."""

    values: list[int] = field(default_factory=list)
    buckets: Counter[int] = field(default_factory=Counter)
    """How many in each half second since the start."""
    last_s: float | None = None
    gap_s: float = 0.0
    """The longest time between two of them."""

    def add(self, value: int, now_s: float, bucket: int) -> None:
        self.values.append(value)
        self.buckets[bucket] += 1
        if self.last_s is not None:
            self.gap_s = max(self.gap_s, now_s - self.last_s)
        self.last_s = now_s


@dataclass(frozen=True, slots=True)
class Findings:
    """What a reader of the whole log found, beside what was acknowledged."""

    read: int
    lost: int
    duplicated: int
    out_of_order: int

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order)


class SteadyProducer:
    """Sends numbers at a fixed rate from a thread of its own, with acks=all and idempotence, otherwise stock."""

    def __init__(self, servers: str, topic: str, partitions: int, rate: int) -> None:
        self._topic = topic
        self._rate = rate
        self._partitions = partitions
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all", "linger.ms": 5, "log_level": 0}
        )
        self.tallies = {number: PartitionTally() for number in range(partitions)}
        self.sent = 0
        self.failures: list[str] = []
        self.started_s = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-producer", daemon=True)

    @property
    def acknowledged(self) -> int:
        return sum(len(tally.values) for tally in self.tallies.values())

    @property
    def steady_per_bucket(self) -> float:
        """Acknowledgements of one partition in half a second, at the rate of sending."""
        return self._rate / self._partitions * BUCKET_S

    @property
    def bucket(self) -> int:
        return int((time.monotonic() - self.started_s) / BUCKET_S)

    def start(self) -> None:
        self.started_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Waits for the acknowledgement of all that was sent."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(FLUSH_S + READ_TIMEOUT_S)

    def abandon(self) -> None:
        """Ends without waiting for what is not acknowledged."""
        self._producer.purge()
        self.stop()

    def _run(self) -> None:
        while not self._ending.is_set():
            due = int((time.monotonic() - self.started_s) * self._rate)
            while self.sent < due:
                self._send()
            self._producer.poll(0.005)
        unsent = self._producer.flush(FLUSH_S)
        if unsent:
            self.failures.append(f"{unsent} messages were not acknowledged within {FLUSH_S:.0f} s")

    def _send(self) -> None:
        try:
            self._producer.produce(
                self._topic, b"%d" % self.sent, partition=self.sent % self._partitions, on_delivery=self._on_delivery
            )
        except BufferError:  # the queue is full: try again later
            self._producer.poll(0.1)
            return
        self.sent += 1

    def _on_delivery(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        tally = self.tallies[message.partition() or 0]
        tally.add(int(message.value() or b"-1"), time.monotonic(), self.bucket)


class GroupReader:
    """A consumer group of one member that reads along."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "demo", "auto.offset.reset": "earliest", "log_level": 0}
        )
        self._consumer.subscribe([topic])
        self._seen: set[int] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-consumer", daemon=True)

    @property
    def count(self) -> int:
        return len(self._seen)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(READ_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    self._seen.add(int(message.value() or b"-1"))
        self._consumer.close()


def check_log(servers: str, topic: str, tallies: dict[int, PartitionTally]) -> Findings:
    """Reads the topic from its beginning and compares it with what was acknowledged."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "demo-check", "log_level": 0})
    try:
        found = {number: _read(consumer, topic, number) for number in tallies}
    finally:
        consumer.close()
    lost = duplicated = out_of_order = 0
    for number, tally in tallies.items():
        lost += len(set(tally.values) - set(found[number]))
        duplicated += len(found[number]) - len(set(found[number]))
        out_of_order += sum(later < earlier for earlier, later in zip(found[number], found[number][1:], strict=False))
    return Findings(sum(map(len, found.values())), lost, duplicated, out_of_order)


def _read(consumer: Consumer, topic: str, number: int) -> list[int]:
    """Every value of a partition, in the order of the log; less where it cannot be read to its end."""
    place = TopicPartition(topic, number, 0)
    values: list[int] = []
    try:
        _, end = consumer.get_watermark_offsets(place, timeout=READ_TIMEOUT_S)
        consumer.assign([place])
        position = 0
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while position < end and time.monotonic() < deadline_s:
            for message in consumer.consume(1000, timeout=0.2):  # it waits that long for a full thousand
                if message.error() is None:
                    values.append(int(message.value() or b"-1"))
                    position = (message.offset() or 0) + 1
    except KafkaException:
        return values
    return values
