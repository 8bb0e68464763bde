"""Brokers with transactions for tests, what readers see of a topic, and a driver that dies where it is told to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from barnabas.client.wire import Client
from barnabas.client.wire.admin import LATEST, list_offsets
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.client.wire.decoding import decode
from barnabas.client.wire.transactions import ONGOING, TransactionFilter, list_transactions
from barnabas.model.ids import TopicPartition
from barnabas.spark.exactly_once.commit import Committer, Outcome
from barnabas.spark.exactly_once.names import Origin
from barnabas.spark.exactly_once.task import TaskResult, write_transaction
from barnabas.spark.options import parse_sink
from barnabas.testing import EmbeddedBroker
from bench.systems import CACHE, Kafka, unavailable


class TransactionalKafka(Kafka):
    """With few partitions of the coordinators' topics, and transactions that time out soon."""

    def _write_config(self, *, fsync: bool) -> str:
        path = super()._write_config(fsync=fsync)
        with open(path, "a", encoding="utf-8") as file:
            file.write("transaction.state.log.num.partitions=4\noffsets.topic.num.partitions=4\n")
            file.write("transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n")
        return path


def kafka_missing() -> str | None:
    """Why there is no Apache Kafka here."""
    reason = unavailable()
    if reason is None and not os.environ.get("KAFKA_LIBS") and not (CACHE / "libs").exists():
        return "Kafka's jars are not here: make dump fetches them"
    return reason


@contextmanager
def barnabas_servers() -> Iterator[str]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with EmbeddedBroker(settings=settings) as broker:
        yield broker.bootstrap_servers


@contextmanager
def kafka_servers() -> Iterator[str]:
    with TransactionalKafka() as kafka:
        yield kafka.start().servers


def visible(client: Client, topic: str, *, committed: bool = True) -> list[str]:
    """The values that a read_committed reader sees, in no order."""
    client.forget([topic])
    places = [TopicPartition(topic, number) for number in client.topic(topic).partitions]
    ends = list_offsets(client, dict.fromkeys(places, LATEST), read_committed=committed)
    found: list[str] = []
    limits = FetchLimits(max_wait_ms=0, read_committed=committed)
    for place in places:
        offset = 0
        while offset < ends[place].offset:
            (answer,) = fetch(client, {place: offset}, limits)
            decoded = decode(answer, offset, read_committed=committed)
            found += [(record.value or b"").decode() for record in decoded.records]
            offset = decoded.next_offset
    return sorted(found)


def open_of(client: Client, application: str) -> list[str]:
    """The transactions of an application that are open."""
    ongoing = list_transactions(client, TransactionFilter(states=[ONGOING]))
    return [each.transactional_id for each in ongoing if f"-{application}-" in each.transactional_id]


class DriverDied(Exception):
    pass


def dies_at(step: str, times: int = 1) -> Callable[[str], None]:
    """For Committer: raises when the step is reached for the so many-th time."""
    count = 0

    def reached(name: str) -> None:
        nonlocal count
        count += name == step
        if name == step and count == times:
            raise DriverDied(step)

    return reached


class Query:
    """What Spark does with the sink, without Spark: tasks write, the driver commits."""

    def __init__(self, servers: str, topic: str, application: str, query: str = "q1", **options: str) -> None:
        given = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryMode": "exactly-once", **options}
        self.options = given
        self.application = application
        self.query = query

    def task(self, batch: int | None, rows: Sequence[str], partition: int = 0, first_offset: int = 0) -> TaskResult:
        """One attempt of a task, with rows of one partition of the source."""
        places = [
            {"topic": "in", "partition": partition, "offset": offset}
            for offset in range(first_offset, first_offset + len(rows))
        ]
        columns = {"key": [row[-1:] for row in rows], "value": list(rows), "source": places}
        batches = [pa.RecordBatch.from_pydict(columns)]
        return write_transaction(parse_sink(self.options), batches, Origin(self.application, self.query, batch))

    def commit(
        self,
        client: Client,
        batch: int | None,
        results: Sequence[TaskResult],
        reached: Callable[[str], None] | None = None,
    ) -> Outcome:
        committer = Committer(client, self.application, **({"reached": reached} if reached else {}))
        return committer.commit(Origin(self.application, self.query, batch), results)

    def run(self, client: Client, batch: int, tasks: Sequence[Sequence[str]]) -> Outcome:
        return self.commit(client, batch, [self.task(batch, rows) for rows in tasks])


def sees(client: Client, topic: str, expected: Sequence[str]) -> bool:
    """Whether a read_committed reader comes to see these values and no others: markers are written after the reply."""
    deadline_s = time.monotonic() + 10
    while (found := visible(client, topic)) != sorted(expected):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{found} is seen, not {sorted(expected)}")
        time.sleep(0.02)
    return True
