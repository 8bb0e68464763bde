"""A worker that reads a topic, writes what it reads to another one, and commits its offsets in the same transaction.

It is a process of its own, to be killed or paused at any moment. After an error that a producer cannot go on after it
ends with status ``GAVE_UP``; the pool starts it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

GAVE_UP = 3
POLL_S = 0.1
CALL_TIMEOUT_S = 5.0
ABORT_SHARE = 0.05
"""Of the transactions, aborted for no reason; what they read is read again."""
PARTITIONS_ALL = -1


class Task(NamedTuple):
    servers: str
    group: str
    source: str
    target: str
    name: str
    ids: str
    """``worker``: one transactional id for each worker, fenced by the group's generation (KIP-447). ``partition``: one
    for each partition of the source, fenced by its epoch."""
    is_static: bool
    """With group.instance.id: a worker that comes back soon keeps its partitions (KIP-345)."""
    transaction_timeout_ms: int
    session_timeout_ms: int
    batch: int = 100
    until: dict[str, int] | None = None
    """Offsets of the source by partition: once the group has committed these, the worker is done."""
    stall_s: int = 30
    """librdkafka waits for ever for some answers that a lost connection owes it: SIGALRM ends a worker then."""


class Worker:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._parent = os.getppid()
        self._chance = random.Random()
        self._producers: dict[int, Producer] = {}
        self._stopping = False
        static = {"group.instance.id": task.name} if task.is_static else {}
        self._consumer = Consumer(
            {
                **self._settings(),
                **static,
                "group.id": task.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": task.session_timeout_ms,
                "heartbeat.interval.ms": task.session_timeout_ms // 6,
                "fetch.wait.max.ms": 50,
            }
        )

    def _settings(self) -> dict[str, object]:
        backoff = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50}
        return {"bootstrap.servers": self._task.servers, "log_level": 0, **backoff}

    def _new_producer(self, transactional_id: str) -> Producer:
        timeout_ms = self._task.transaction_timeout_ms
        own = {"transactional.id": transactional_id, "client.id": transactional_id, "linger.ms": 1}
        times = {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms}
        producer = Producer({**self._settings(), **own, **times})
        retried(producer.init_transactions)
        return producer

    def stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> None:
        """Ends with its parent too."""
        if self._task.ids == "worker":
            self._producers[PARTITIONS_ALL] = self._new_producer(f"{self._task.group}-{self._task.name}")
        self._consumer.subscribe([self._task.source], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self._stopping and os.getppid() == self._parent:
            signal.alarm(self._task.stall_s)
            messages = self._consumer.consume(self._task.batch, POLL_S)
            self._stopping |= not messages and self._is_done()
            for number, part in self._by_producer(messages).items():
                self._transact(self._producers[number], part)
        self.leave()

    def leave(self) -> None:
        self._consumer.close()

    def _is_done(self) -> bool:
        wanted = {int(partition): offset for partition, offset in (self._task.until or {}).items()}
        # Without an assignment the question would wait behind JoinGroup, and that for members that were killed.
        return bool(wanted and self._consumer.assignment()) and self._committed(list(wanted)) == wanted

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """With ids by partition the former owner is fenced before the offsets are asked for."""
        if self._task.ids == "partition":
            for each in partitions:
                self._producers[each.partition] = self._new_producer(f"{self._task.group}-{each.partition}")
        consumer.assign(partitions)

    def _on_revoke(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        if self._task.ids == "partition":
            self._producers.clear()
        consumer.unassign()

    def _by_producer(self, messages: list[Message]) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = {}
        for message in messages:
            if message.error() is None:
                number = message.partition() if self._task.ids == "partition" else PARTITIONS_ALL
                found.setdefault(number, []).append(message)
            elif message.error().fatal():
                raise KafkaException(message.error())
        return {number: part for number, part in found.items() if number in self._producers}

    def _transact(self, producer: Producer, messages: list[Message]) -> None:
        next_offsets: dict[int, int] = {}
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(self._task.target, message.value(), partition=message.partition())
                next_offsets[message.partition()] = message.offset() + 1
            offsets = [TopicPartition(self._task.source, *pair) for pair in next_offsets.items()]
            metadata = self._consumer.consumer_group_metadata()
            retried(lambda timeout_s: producer.send_offsets_to_transaction(offsets, metadata, timeout_s))
            if self._chance.random() >= ABORT_SHARE:
                retried(producer.commit_transaction)
                return
        except KafkaException as problem:
            if not error_of(problem).txn_requires_abort():
                raise
            report(problem, "aborts")
        retried(producer.abort_transaction)
        self._rewind(list(next_offsets))

    def _rewind(self, partitions: list[int]) -> None:
        """Back to what is committed; without a commit to the beginning."""
        owned = {each.partition for each in self._consumer.assignment()}
        for partition, offset in self._committed([each for each in partitions if each in owned]).items():
            self._consumer.seek(TopicPartition(self._task.source, partition, max(0, offset)))

    def _committed(self, partitions: list[int]) -> dict[int, int]:
        places = [TopicPartition(self._task.source, each) for each in partitions]
        found = self._consumer.committed(places, CALL_TIMEOUT_S) if places else []
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {each.partition: each.offset for each in found}


def retried(call: Callable[[float], object]) -> None:
    """Calls again as long as librdkafka says that this is safe."""
    deadline_s = time.monotonic() + 3 * CALL_TIMEOUT_S
    while True:
        try:
            call(CALL_TIMEOUT_S)
        except KafkaException as problem:
            if not error_of(problem).retriable() or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return


def error_of(problem: KafkaException) -> KafkaError:
    error: KafkaError = problem.args[0]
    return error


def report(problem: KafkaException, what: str) -> None:
    error = error_of(problem)
    print(json.dumps({"what": what, "name": error.name(), "text": error.str()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", help="a Task as JSON")
    task = Task(**json.loads(parser.parse_args().task))
    signal.alarm(task.stall_s)
    worker = Worker(task)
    signal.signal(signal.SIGTERM, worker.stop)
    try:
        worker.run()
    except KafkaException as problem:
        report(problem, "gives up")
        worker.leave()
        sys.exit(GAVE_UP)


if __name__ == "__main__":
    main()
