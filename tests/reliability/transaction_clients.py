"""Stock transactional producers behind one interface: confluent-kafka, kafka-python, and Kafka's own in a JVM.

The records of a transaction follow from its number (``records_of``), so that a check needs only the outcome.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.reliability.transaction_worker import error_of, retried

PARTITIONS = 3
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
CALL_TIMEOUT_S = 60.0
JAVA_TIMEOUT_S = 300.0


class Sent(NamedTuple):
    partition: int
    value: bytes


def records_of(name: str, number: int) -> list[Sent]:
    return [Sent((number + each) % PARTITIONS, f"{name}/{number}/{each}".encode()) for each in range(1 + number % 7)]


class TransactionalClient(Protocol):
    def transact(self, topic: str, records: list[Sent], *, commit: bool) -> tuple[str, bool]:
        """The outcome, and whether the producer can go on."""

    def close(self) -> None: ...


class ConfluentClient:
    def __init__(self, servers: str, name: str, timeout_ms: int) -> None:
        own = {"transactional.id": name, "client.id": name, "transaction.timeout.ms": timeout_ms, "linger.ms": 1}
        small = {"batch.num.messages": 3, "message.timeout.ms": timeout_ms, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": servers, **own, **small})
        retried(self._producer.init_transactions)

    def transact(self, topic: str, records: list[Sent], *, commit: bool) -> tuple[str, bool]:
        may_be_committed = False
        try:
            self._producer.begin_transaction()
            for each in records:
                self._producer.produce(topic, each.value, partition=each.partition)
            if commit:
                may_be_committed = True
                retried(self._producer.commit_transaction)
                return COMMITTED, True
        except KafkaException as problem:
            if not error_of(problem).txn_requires_abort():
                return UNKNOWN if may_be_committed else ABORTED, False
        try:
            retried(self._producer.abort_transaction)
        except KafkaException:
            return UNKNOWN if may_be_committed else ABORTED, False
        return ABORTED, True

    def close(self) -> None:
        """It has nothing to end: the broker aborts what is open."""


class KafkaPythonClient:
    def __init__(self, servers: str, name: str, timeout_ms: int) -> None:
        own = {"transactional_id": name, "client_id": name, "transaction_timeout_ms": timeout_ms}
        waits = {"delivery_timeout_ms": 8_000, "request_timeout_ms": 4_000, "max_block_ms": 60_000}
        self._producer = KafkaProducer(bootstrap_servers=servers, **own, **waits, batch_size=100)
        try:
            self._producer.init_transactions()
        except KafkaError:
            self.close()
            raise

    def transact(self, topic: str, records: list[Sent], *, commit: bool) -> tuple[str, bool]:
        """What fails here ends the producer: its errors do not tell whether an abort is possible.

        Records are waited for: kafka-python 3.0 commits transactions of which records have failed.
        """
        may_be_committed = False
        try:
            self._producer.begin_transaction()
            futures = [self._producer.send(topic, each.value, partition=each.partition) for each in records]
            for future in futures:
                future.get(CALL_TIMEOUT_S)
            if commit:
                may_be_committed = True
                self._producer.commit_transaction()
                return COMMITTED, True
            self._producer.abort_transaction()
        except KafkaError:
            return UNKNOWN if may_be_committed else ABORTED, False
        return ABORTED, True

    def close(self) -> None:
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=0)


PYTHON_CLIENTS: dict[str, Callable[[str, str, int], TransactionalClient]] = {
    "confluent": ConfluentClient,
    "kafka-python": KafkaPythonClient,
}


class JavaClient:
    """A JVM that runs transactions when it is asked to: ``TransactionLoad.java``."""

    def __init__(self, command: list[str], errors: Path) -> None:
        with errors.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True
            )

    def ask(self, *words: object) -> list[list[str]]:
        """The lines of the answer, in words."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        lines: list[list[str]] = []
        for line in self._process.stdout:
            if line.startswith("done"):
                return lines
            lines.append(line.split())
        raise RuntimeError(f"the JVM ended with {self._process.wait()}: {lines[-5:]}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
