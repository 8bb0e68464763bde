"""Groups and many partitions: how long people wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.systems import System


def first_message(system: System, name: str) -> float:
    """Seconds from subscribing with a new group to its first message."""
    producer = Producer({"bootstrap.servers": system.servers, "log_level": 0})
    for partition in range(8):
        producer.produce("group-bench", b"x", partition=partition)
    producer.flush(30)
    consumer = _consumer(system, name)
    began = time.perf_counter()
    consumer.subscribe(["group-bench"])
    _until(lambda: consumer.poll(0.05) is not None)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def join_and_leave(system: System, name: str) -> tuple[float, float]:
    """(seconds until a second member has its share, seconds until the first has all again)."""
    first, second = _consumer(system, name), _consumer(system, name)
    first.subscribe(["group-bench"])
    _until(lambda: (first.poll(0.02), len(first.assignment()) == 8)[1])
    _poll(1.5, first)  # a group that has settled, not one that is just beginning
    began = time.perf_counter()
    second.subscribe(["group-bench"])
    _until(lambda: (first.poll(0.02), second.poll(0.02), len(second.assignment()) == 4)[2])
    joined = time.perf_counter() - began
    _poll(1.5, first, second)
    began = time.perf_counter()
    second.close()
    _until(lambda: (first.poll(0.02), len(first.assignment()) == 8)[1])
    left = time.perf_counter() - began
    first.close()
    return joined, left


def _consumer(system: System, name: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": system.servers,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 1000,
            "log_level": 0,
        }
    )


def _poll(seconds: float, *consumers: Consumer) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for consumer in consumers:
            consumer.poll(0.02)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the condition was not met within a minute")


def many_partitions(system: System, count: int) -> dict[str, str]:
    """``count`` partitions in ten topics: create, idle, stop, start again."""
    admin = AdminClient({"bootstrap.servers": system.servers, "log_level": 0})
    began = time.perf_counter()
    for number in range(10):  # Kafka does not take as many in one request
        name = f"many-{number}"
        admin.create_topics([NewTopic(name, count // 10, 1)], request_timeout=300)[name].result(300)
    settings = {"bootstrap.servers": system.servers, "log_level": 0, "topic.metadata.propagation.max.ms": 100_000}
    producer = Producer(settings)
    producer.produce("many-9", b"x", partition=count // 10 - 1)
    if producer.flush(300):
        raise RuntimeError("the last partition could not be written")
    created = time.perf_counter() - began
    time.sleep(5)
    cpu = system.cpu_s()
    time.sleep(10)
    share = (system.cpu_s() - cpu) / 10
    memory = system.memory_mb()
    began = time.perf_counter()
    system.stop()
    stopped = time.perf_counter() - began
    began = time.perf_counter()
    system.start()
    producer.produce("many-9", b"x", partition=count // 10 - 1)
    producer.flush(300)
    return {
        f"{count:,} partitions created and the last one written": f"{created:.1f} s",
        f"{count:,} partitions: clean stop": f"{stopped:.1f} s",
        f"{count:,} partitions: start to the last one written": f"{time.perf_counter() - began:.1f} s",
        f"{count:,} partitions, idle: memory; CPU of one core": f"{memory:.0f} MB; {share * 100:.1f} %",
    }
