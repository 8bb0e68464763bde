"""Clients under faults: producers, readers, a consumer group and an admin, each event recorded in a ``History``.

The clients are confluent-kafka's with the settings of an ordinary user: no time-out is shortened.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.reliability.fault_history import (
    Ack,
    Assignment,
    Commit,
    Committed,
    Failure,
    History,
    Log,
    Note,
    Poll,
    Send,
    Value,
)

TOPIC = "numbers"
GROUP = "watchers"
PARTITIONS = 6
PRODUCERS = 3
SEND_EVERY_S = 0.02
COMMIT_EVERY_S = 0.5
ASK_EVERY_S = 2.0
CREATE_EVERY_S = 15.0
FLUSH_TIMEOUT_S = 330.0
"""Beyond message.timeout.ms, which is 300 s: a producer has an answer for each record by then."""
_VALUE = struct.Struct(">iq")
_PADDING = b"." * 88


class Load:
    def __init__(self, servers: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.history = History()
        self._servers = servers
        self._now = clock
        self._stopping_producers = threading.Event()
        self._stopping = threading.Event()
        self._producers = [_Producer(self, number) for number in range(PRODUCERS)]
        self._sending: list[threading.Thread] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._create_topic()
        self._sending = [threading.Thread(target=each.run, daemon=True) for each in self._producers]
        jobs: list[Callable[[], None]] = [
            lambda: self._read("reader 1"),
            lambda: self._read("reader 2"),
            lambda: _Member(self, "member 1").run(),
            lambda: _Member(self, "member 2").run(),
            self._ask_committed,
            self._create_topics,
        ]
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in [*self._sending, *self._threads]:
            thread.start()

    def _create_topic(self) -> None:
        admin = AdminClient(self.settings())
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(60)

    def settings(self, **more: object) -> dict[str, Any]:
        return {"bootstrap.servers": self._servers, "log_level": 0, **more}

    def finish(self) -> None:
        """Stops sending, waits for an answer to each record, lets the consumers catch up and stops them."""
        self._stopping_producers.set()
        for thread in self._sending:
            thread.join(FLUSH_TIMEOUT_S + 30)
            if thread.is_alive():
                self.history.fatal.append("a producer does not end")
        self._wait_for_readers(60)
        self._stopping.set()
        for thread in self._threads:
            thread.join(90)
            if thread.is_alive():
                self.history.fatal.append("a consumer or admin does not end")

    def _wait_for_readers(self, timeout_s: float) -> None:
        deadline_s = self._now() + timeout_s
        while self._now() < deadline_s and not self.is_caught_up():
            time.sleep(0.1)

    def is_caught_up(self) -> bool:
        """Whether both readers have read what was acknowledged before this call."""
        ends = self.acknowledged_ends()
        return all(
            read.get(partition, -1) >= end
            for read in (_last_offsets(self.history.readers[f"reader {number}"]) for number in (1, 2))
            for partition, end in ends.items()
        )

    def acknowledged_ends(self) -> dict[int, int]:
        ends: dict[int, int] = {}
        for ack in reversed(self.history.acks[-5000:]):
            ends[ack.partition] = max(ends.get(ack.partition, -1), ack.offset)
        return ends

    def note(self, client: str, text: str) -> None:
        self.history.notes.append(Note(self._now(), client, text))

    # Consumers that read everything

    def _read(self, name: str) -> None:
        """The group id is never used: the reader commits nothing. librdkafka wants one."""
        consumer = Consumer(self.settings(**{"group.id": name, "enable.auto.commit": False}))
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        polls = self.history.readers[name]
        try:
            while not self._stopping.is_set():
                for message in consumer.consume(500, 0.05):
                    if message.error() is not None:
                        self.note(name, str(message.error()))
                    else:
                        polls.append(_poll(self._now(), message))
        finally:
            consumer.close()

    # The group from outside

    def _ask_committed(self) -> None:
        asker = Consumer(self.settings(**{"group.id": GROUP, "enable.auto.commit": False}))
        wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        try:
            while not self._stopping.wait(ASK_EVERY_S):
                began_s = self._now()
                try:
                    found = asker.committed(wanted, timeout=30)
                except KafkaException as problem:
                    self.note("committed", str(problem))
                    continue
                ended_s = self._now()
                for each in found:
                    if each.error is None:
                        self.history.committed.append(Committed(began_s, ended_s, each.partition, each.offset))
        finally:
            asker.close()

    # Admin

    def _create_topics(self) -> None:
        admin = AdminClient(self.settings())
        number = 0
        while not self._stopping.wait(CREATE_EVERY_S):
            name = f"extra-{number}"
            number += 1
            try:
                admin.create_topics([NewTopic(name, 1, 3)])[name].result(90)
                self.history.created_topics.append(name)
                admin.list_topics(timeout=30)
            except (KafkaException, TimeoutError) as problem:
                self.note("admin", f"{name}: {problem}")


class _Producer:
    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._history = load.history
        self._number = number
        self._next = [0] * PARTITIONS
        self._producer = Producer(
            load.settings(**{"enable.idempotence": True, "acks": "all", "error_cb": self._on_error})
        )

    def _on_error(self, error: KafkaError) -> None:
        self._load.note(f"producer {self._number}", str(error))
        if error.fatal():
            self._history.fatal.append(f"producer {self._number}: {error}")

    def run(self) -> None:
        load, due_s = self._load, self._load._now()
        while not load._stopping_producers.is_set():
            for partition in range(PARTITIONS):
                self._send(partition)
            due_s = max(due_s + SEND_EVERY_S, load._now() - 1)
            while (left_s := due_s - load._now()) > 0:
                self._producer.poll(left_s)
            self._producer.poll(0)
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if left:
            self._history.fatal.append(f"producer {self._number}: {left} records without an answer")

    def _send(self, partition: int) -> None:
        number = self._next[partition]
        value = Value(self._number, number)
        now_s = self._load._now()

        def delivered(error: KafkaError | None, message: Message) -> None:
            time_s = self._load._now()
            if error is not None:
                self._history.failures.append(Failure(time_s, partition, value, str(error)))
            else:
                offset = message.offset()
                self._history.acks.append(Ack(time_s, partition, value, -1 if offset is None else offset))

        try:
            self._producer.produce(TOPIC, _VALUE.pack(*value) + _PADDING, partition=partition, on_delivery=delivered)
        except (BufferError, KafkaException) as problem:
            self._load.note(f"producer {self._number}", f"not sent: {problem}")
            return
        self._history.sends.append(Send(now_s, partition, value))
        self._next[partition] = number + 1


class _Member:
    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._events = load.history.members[name]
        self._positions: dict[int, int] = {}
        settings = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = Consumer(load.settings(**settings))

    def run(self) -> None:
        load = self._load
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
        commit_due_s = load._now() + COMMIT_EVERY_S
        try:
            while not load._stopping.is_set():
                for message in self._consumer.consume(500, 0.05):
                    if message.error() is not None:
                        load.note(self._name, str(message.error()))
                        continue
                    poll = _poll(load._now(), message)
                    self._events.append(poll)
                    self._positions[poll.partition] = poll.offset + 1
                if load._now() >= commit_due_s:
                    self._commit()
                    commit_due_s = load._now() + COMMIT_EVERY_S
        finally:
            self._consumer.close()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._positions.clear()
        self._events.append(Assignment(self._load._now(), tuple(each.partition for each in partitions)))

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._positions.clear()

    def _commit(self) -> None:
        wanted = [TopicPartition(TOPIC, partition, offset) for partition, offset in self._positions.items()]
        if not wanted:
            return
        began_s = self._load._now()
        try:
            results = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as problem:
            results = [TopicPartition(each.topic, each.partition, each.offset) for each in wanted]
            errors = [str(problem)] * len(results)
        else:
            errors = [None if each.error is None else str(each.error) for each in results]
        ended_s = self._load._now()
        for each, error in zip(results, errors, strict=True):
            self._load.history.commits.append(Commit(began_s, ended_s, each.partition, each.offset, error))


def _poll(time_s: float, message: Message) -> Poll:
    value = Value(*_VALUE.unpack_from(message.value() or b""))
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Poll(time_s, partition, offset, value)


def _last_offsets(polls: list[Poll]) -> dict[int, int]:
    last: dict[int, int] = {}
    for poll in reversed(polls[-20_000:]):
        last.setdefault(poll.partition, poll.offset)
    return last


def read_log(servers: str, timeout_s: float = 120) -> Log:
    """Every record of every partition, read by a consumer that saw nothing of the run. Raises TimeoutError."""
    settings = {"bootstrap.servers": servers, "group.id": "verify", "enable.auto.commit": False, "log_level": 0}
    reader = Consumer(settings)
    try:
        partitions = range(PARTITIONS)
        ends = [reader.get_watermark_offsets(TopicPartition(TOPIC, each), timeout=30)[1] for each in partitions]
        reader.assign([TopicPartition(TOPIC, each, 0) for each in partitions])
        log: Log = {each: [] for each in partitions}
        deadline_s = time.monotonic() + timeout_s
        while any(not log[each] or log[each][-1][0] < ends[each] - 1 for each in partitions if ends[each] > 0):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the logs cannot be read to their ends {ends}")
            for message in reader.consume(10_000, 0.2):
                if message.error() is None:
                    poll = _poll(0, message)
                    log[poll.partition].append((poll.offset, poll.value))
        return log
    finally:
        reader.close()
