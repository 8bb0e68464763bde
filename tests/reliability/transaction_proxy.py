"""Transactions through a proxy that holds, repeats and reorders their requests.

``python -m tests.reliability.transaction_proxy --rounds 100``: stock clients reach the broker through ``frame_proxy``.
In each round producers of confluent-kafka, kafka-python and, with ``--java``, of Kafka itself commit and abort
transactions, and others copy a topic with their offsets. Then no committed transaction is torn, doubled or lost,
nothing of an aborted one is read, each copy is its source, and soon after the transaction time-out none is open.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import KafkaError

from barnabas.net.local_ports import free_ports
from tests.conformance import languages
from tests.reliability import clusters
from tests.reliability.frame_proxy import FrameProxy
from tests.reliability.stable_offsets import read_committed, wait_until_stable
from tests.reliability.transaction_clients import (
    ABORTED,
    COMMITTED,
    PARTITIONS,
    PYTHON_CLIENTS,
    UNKNOWN,
    JavaClient,
    TransactionalClient,
    records_of,
)
from tests.reliability.transaction_pool import start_worker
from tests.reliability.transaction_worker import Task

TIMEOUT_MS = 6000
BOUND_S = 10.0
"""Beyond the time-out of a transaction: for the coordinator to notice, and to write markers."""
TRANSACTIONS = 12
"""Of each producer in a round."""
COPIED = 60
"""Records of each partition of a source."""
COPY_TIMEOUT_S = 120.0
STALL_S = 8
ABORT_SHARE = 0.25


@dataclass
class Totals:
    outcomes: Counter[str] = field(default_factory=Counter)
    records: int = 0
    copied: int = 0
    slowest_end_s: float = 0.0

    def add(self, other: Totals) -> None:
        self.outcomes += other.outcomes
        self.records += other.records
        self.copied += other.copied
        self.slowest_end_s = max(self.slowest_end_s, other.slowest_end_s)


class Round:
    def __init__(self, servers: str, number: int, seed: int, folder: Path, java: JavaClient | None) -> None:
        self._servers = servers
        self._name = f"r{number}"
        self._seed = f"{seed}-{number}"
        self._folder = folder
        self._java = java
        self._outcomes: dict[str, dict[int, str]] = {}
        self._failures: list[str] = []
        self._copies: list[tuple[str, str]] = []

    def run(self) -> Totals:
        jobs: list[Callable[[], None]] = []
        for kind, create in PYTHON_CLIENTS.items():
            name = f"{self._name}-{kind}"
            jobs.append(lambda name=name, create=create: self._produce(name, create))  # type: ignore[misc]
        source, target = self._new_copy("confluent")
        jobs.append(lambda: self._copy(source, target))
        if self._java is not None:
            jobs.append(lambda: self._run_java(*self._new_copy("java")))
        self._create([self._name])
        threads = [threading.Thread(target=self._guarded, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self._failures, self._failures
        return self._verify()

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as problem:  # reported by the round, in the main thread
            self._failures.append(repr(problem))

    def _create(self, topics: list[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        for future in admin.create_topics([NewTopic(each, PARTITIONS) for each in topics]).values():
            future.result(60)

    # Producers

    def _produce(self, name: str, create: Callable[[str, str, int], TransactionalClient]) -> None:
        chance = random.Random(f"{self._seed}-{name}")
        client: TransactionalClient | None = None
        outcomes = self._outcomes[name] = {}
        for number in range(TRANSACTIONS):
            try:
                client = client or create(self._servers, name, TIMEOUT_MS)
            except (KafkaException, KafkaError):
                continue  # no producer, so no transaction
            commit = chance.random() >= ABORT_SHARE
            outcomes[number], goes_on = client.transact(self._name, records_of(name, number), commit=commit)
            if not goes_on or chance.random() < 0.1:  # a new producer fences the old one, whose requests come late
                client.close()
                client = None
        if client is not None:
            client.close()

    def _run_java(self, source: str, target: str) -> None:
        assert self._java is not None
        name = f"{self._name}-java"
        seed = random.Random(self._seed).randrange(1 << 30)
        found = self._java.ask("plain", self._name, PARTITIONS, name, TRANSACTIONS, seed)
        self._outcomes[name] = {int(number): outcome for number, outcome in found}
        self._java.ask("copy", source, target, f"{target}-group", f"{target}-id")

    # Copies with offsets

    def _new_copy(self, kind: str) -> tuple[str, str]:
        source, target = f"{self._name}-{kind}-source", f"{self._name}-{kind}-target"
        self._create([source, target])
        filler = Producer({"bootstrap.servers": self._servers, "log_level": 0, "enable.idempotence": True})
        for number in range(COPIED):
            for partition in range(PARTITIONS):
                filler.produce(source, b"%d" % number, partition=partition)
        assert filler.flush(60) == 0
        self._copies.append((source, target))
        return source, target

    def _copy(self, source: str, target: str) -> None:
        """A worker that gives up is followed by a new one with the same transactional id, as after a restart."""
        task = Task(
            servers=self._servers,
            group=f"{target}-group",
            source=source,
            target=target,
            name="worker",
            ids="worker",
            is_static=True,
            transaction_timeout_ms=TIMEOUT_MS,
            session_timeout_ms=6000,
            batch=20,
            until=dict.fromkeys(map(str, range(PARTITIONS)), COPIED),
            stall_s=STALL_S,
        )
        deadline_s = time.monotonic() + COPY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            process = start_worker(task, self._folder / f"{target}.log")
            try:
                if process.wait(max(0, deadline_s - time.monotonic())) == 0:
                    return
            except subprocess.TimeoutExpired:
                break
            finally:
                process.kill()
                process.wait()
        raise AssertionError(f"{target}: the group does not reach the end of the source, or its offsets went back")

    # Checks

    def _verify(self) -> Totals:
        topics = [self._name, *(target for _, target in self._copies)]
        totals = Totals(slowest_end_s=wait_until_stable(self._servers, topics, TIMEOUT_MS / 1000 + BOUND_S))
        read = read_committed(self._servers, self._name)
        places = {partition: [message.value() or b"" for message in found] for partition, found in read.items()}
        for name, outcomes in self._outcomes.items():
            totals.outcomes += Counter(outcomes.values())
            totals.records += self._check_producer(name, outcomes, places)
        for _, target in self._copies:
            totals.copied += self._check_copy(target)
        return totals

    def _check_producer(self, name: str, outcomes: dict[int, str], places: dict[int, list[bytes]]) -> int:
        seen = Counter(value for values in places.values() for value in values if value.startswith(f"{name}/".encode()))
        expected: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        for number, outcome in sorted(outcomes.items()):
            records = records_of(name, number)
            copies = {seen[each.value] for each in records}
            allowed = {COMMITTED: ({1},), ABORTED: ({0},), UNKNOWN: ({0}, {1})}[outcome]
            assert copies in allowed, f"{name}, transaction {number}, {outcome}: its records are there {copies} times"
            for each in records:
                if seen[each.value]:
                    expected[each.partition].append(each.value)
        for partition, values in places.items():
            own = [value for value in values if value.startswith(f"{name}/".encode())]
            assert own == expected[partition], f"{name}, partition {partition}: reordered or unknown records"
        return seen.total()

    def _check_copy(self, target: str) -> int:
        for partition, messages in read_committed(self._servers, target).items():
            found = [int(message.value() or b"-1") for message in messages]
            assert found == list(range(COPIED)), f"{target}, partition {partition}: {found}"
        return COPIED * PARTITIONS


@contextmanager
def proxied(system: str, seed: int, *, at_any_time: bool = False) -> Iterator[tuple[FrameProxy, str, Path]]:
    """A broker that sends its clients to the proxy: the proxy, its address and a folder."""
    proxy = FrameProxy(seed, at_any_time=at_any_time)
    try:
        with tempfile.TemporaryDirectory(prefix="transaction-proxy-", ignore_cleanup_errors=True) as name:
            port, controller_port = free_ports(clusters.HOST, 2)
            shown = proxy.listen(port)
            ports = [(port, controller_port)]
            cluster = clusters.create(system, Path(name), 1, {}, ports=ports, advertised=[shown])
            with clusters.running(cluster, 1):
                yield proxy, cluster.bootstrap_servers, Path(name)
    finally:
        proxy.close()


def run(
    *,
    rounds: int,
    seed: int,
    system: str = "barnabas",
    with_java: bool = False,
    at_any_time: bool = False,
    quiet: bool = False,
) -> Totals:
    totals = Totals()
    with proxied(system, seed, at_any_time=at_any_time) as (proxy, servers, folder):
        java = _start_java(servers, folder) if with_java else None
        try:
            for number in range(rounds):
                began_s = time.monotonic()
                found = Round(servers, number, seed, folder, java).run()
                totals.add(found)
                proxy.forget()
                if not quiet:
                    print(
                        f"round {number + 1:3}: {dict(found.outcomes)}, {found.copied} copied, all ended after "
                        f"{found.slowest_end_s:.1f} s, {time.monotonic() - began_s:.1f} s",
                        flush=True,
                    )
        finally:
            if java is not None:
                java.close()
        if not quiet:
            print("requests:", ", ".join(f"{count} {what}" for what, count in sorted(proxy.counts.items())))
    return totals


def _start_java(servers: str, folder: Path) -> JavaClient:
    command = languages.java("TransactionLoad")(servers)
    return JavaClient([*command[:-1], str(TIMEOUT_MS)], folder / "java.log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--system", choices=clusters.SYSTEMS, default="barnabas")
    parser.add_argument(
        "--java", action="store_true", help="with Kafka's own producer too, whose epochs rise (KIP-890)"
    )
    parser.add_argument("--at-any-time", action="store_true", help="late requests of older clients too: it must fail")
    options = parser.parse_args()
    clusters.interrupt_on_sigterm()
    print(f"seed {options.seed}", flush=True)
    began_s = time.monotonic()
    totals = run(
        rounds=options.rounds,
        seed=options.seed,
        system=options.system,
        with_java=options.java,
        at_any_time=options.at_any_time,
    )
    print(
        f"{options.system}, {options.rounds} rounds: {dict(totals.outcomes)} transactions, {totals.records} records, "
        f"{totals.copied} copied with offsets, none torn, lost, doubled or hanging (the slowest end took "
        f"{totals.slowest_end_s:.1f} s), {time.monotonic() - began_s:.0f} s"
    )


if __name__ == "__main__":
    main()
