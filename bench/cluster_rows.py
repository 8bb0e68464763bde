"""What is measured of a cluster: throughput and latency with acks=all, failover, partitions, catching up."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench import rdkafka
from bench.clusters import Cluster
from bench.suite import MESSAGE, PARTITIONS, RUNS_FOR_LATENCY, Measure, Row, Values
from bench.systems import System

Say = Callable[[str], None]


def rows(scale: float) -> list[Row]:
    return [
        Row("acks=all, 3 replicas, 100 B, 64 KB batches", _produce(65536, scale), {"CPU ms/MB": 0.6}),
        Row("acks=all, 3 replicas, 100 B, 1 MB batches", _produce(1_000_000, scale), {"CPU ms/MB": 0.6}),
        Row(
            "acks=all, one message at a time",
            _serial(scale),
            {"p50 ms": 1.0, "p99 ms": 1.0},
            repeats=RUNS_FOR_LATENCY,
        ),
    ]


def _produce(batch_bytes: int, scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        topic = f"all-{batch_bytes}-{round_number}"
        count = int(2_000_000 * scale)
        result = rdkafka.run(system, "produce", topic, PARTITIONS, count, MESSAGE, batch_bytes, "none", "all")
        return {"msg/s": result.rate, "CPU ms/MB": result.cpu_ms_per_mb(MESSAGE)}

    return measure


def _serial(scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        result = rdkafka.run(system, "serial", "serial-all", int(4_000 * scale), MESSAGE, "all")
        return {"p50 ms": result.p50_ms, "p99 ms": result.p99_ms}

    return measure


# Single measurements


def failover_gaps(cluster: Cluster, rounds: int, say: Say) -> list[float]:
    """The longest gap between acknowledgements, in seconds, when the leader of a partition is killed; stock client."""
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    _create(admin, "failover", 1)
    gaps = []
    for number in range(rounds):
        leader = admin.list_topics("failover", timeout=30).topics["failover"].partitions[0].leader
        load = _Load(cluster.servers)
        time.sleep(3)
        cluster.kill_broker(leader)
        time.sleep(20)
        gaps.append(load.stop())
        say(f"{cluster.name}: leader killed, {number + 1} of {rounds}: {gaps[-1]:.2f} s without an acknowledgement")
        cluster.start_broker(leader)
        _wait_in_sync(admin, "failover")
    return gaps


class _Load:
    """A steady producer of 200 messages a second."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self._acknowledged_s: list[float] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self._producer.produce("failover", b"x" * MESSAGE, partition=0, on_delivery=self._on_delivery)
            self._producer.poll(0.005)

    def _on_delivery(self, error: object, _: object) -> None:
        if error is None:
            self._acknowledged_s.append(time.monotonic())

    def stop(self) -> float:
        self._is_over = True
        self._thread.join()
        self._producer.flush(60)
        times = self._acknowledged_s
        return max((after - before for before, after in itertools.pairwise(times)), default=float("inf"))


def creation(cluster: Cluster, partitions: int) -> float:
    """Seconds until that many partitions with three replicas are there and the last is writable."""
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    began = time.monotonic()
    _create(admin, f"many-{partitions}", partitions)
    producer = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
    producer.produce(f"many-{partitions}", b"x", partition=partitions - 1)
    if producer.flush(120):
        raise RuntimeError(f"{cluster.name}: the last of {partitions} partitions is not writable")
    return time.monotonic() - began


def catching_up(cluster: Cluster, megabytes: int, say: Say) -> float:
    """MB/s of a replica that was away, from the start of its process until it is in sync again."""
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    _create(admin, "behind", 1)
    leader = admin.list_topics("behind", timeout=30).topics["behind"].partitions[0].leader
    follower = next(broker for broker in cluster.pids if broker != leader)
    cluster.kill_broker(follower)
    rdkafka.run(cluster, "produce", "behind", 1, megabytes * 1000, 1000, 1_000_000, "none", "all")
    began = time.monotonic()
    cluster.start_broker(follower)
    _wait_in_sync(admin, "behind")
    seconds = time.monotonic() - began
    say(f"{cluster.name}: {megabytes} MB in {seconds:.1f} s")
    return megabytes / seconds


def _create(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 3)], request_timeout=120, operation_timeout=120)[topic].result(180)
    _wait_in_sync(admin, topic)


def _wait_in_sync(admin: AdminClient, topic: str) -> None:
    deadline_s = time.monotonic() + 180
    while not _is_in_sync(admin, topic):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{topic}: not in sync within 180 s")
        time.sleep(0.1)


def _is_in_sync(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
    return bool(found) and all(len(each.isrs) == 3 and each.leader >= 0 for each in found)
