"""Three Apache Kafka nodes take over the folders and settings of a Barnabas cluster, and give them back.

``python -m tests.conformance.kafka_folders``: each system writes, and a group reads on where it stopped with the other.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.app.local_cluster import LocalCluster
from barnabas.net.local_ports import free_ports
from bench.systems import answers, libraries, unavailable
from tests.conformance.kafka_broker import wait

HOST = "127.0.0.1"
TOPIC, PARTITIONS, MESSAGES = "shared", 6, 3000


@contextmanager
def barnabas(cluster: LocalCluster) -> Iterator[None]:
    cluster.start_all()
    try:
        yield
    finally:
        cluster.stop_all()


@contextmanager
def kafka(cluster: LocalCluster) -> Iterator[None]:
    """With the very settings files of the Barnabas nodes."""
    processes = []
    try:
        for node in cluster.nodes:
            command = ["java", "-Xmx512m", "-cp", f"{libraries()}/*", "kafka.Kafka", str(cluster.settings_path(node))]
            with (cluster.folder / f"kafka-{node}.log").open("ab") as output:
                processes.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        wait("Kafka serves the folders", lambda: all(answers(node.port) for node in cluster.nodes.values()))
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(120)


class Client:
    def __init__(self, servers: str) -> None:
        self._settings = {"bootstrap.servers": servers, "log_level": 0}
        self._sent = 0

    def create(self) -> None:
        admin = AdminClient(self._settings)  # collected, it would take its futures with it
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)

    def wait_in_sync(self) -> None:
        admin = AdminClient(self._settings)

        def holds() -> bool:
            topic = admin.list_topics(TOPIC, timeout=30).topics[TOPIC]
            return all(len(partition.isrs) == 3 for partition in topic.partitions.values())

        wait("every replica is in sync", holds)

    def produce(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True})
        for _ in range(MESSAGES):
            producer.produce(TOPIC, b"%d" % self._sent, partition=self._sent % PARTITIONS)
            self._sent += 1
        wait("a producer writes", lambda: producer.flush(60) == 0)

    def read_on(self) -> None:
        """As the group, from where it committed last."""
        consumer = Consumer({**self._settings, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        found = self._take(consumer, MESSAGES)
        consumer.commit(asynchronous=False)
        consumer.close()
        assert found == list(range(self._sent - MESSAGES, self._sent)), "the group read other messages"
        print("ok a group reads on", flush=True)

    def read_all(self) -> None:
        consumer = Consumer({**self._settings, "group.id": "check"})
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        found = self._take(consumer, self._sent)
        consumer.close()
        assert found == list(range(self._sent)), "messages are missing or there twice"
        print("ok each message is there once", flush=True)

    @staticmethod
    def _take(consumer: Consumer, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and (messages := consumer.consume(count - len(found), timeout=60)):
            found += [int(message.value() or b"-1") for message in messages if message.error() is None]
        return sorted(found)


def run() -> bool:
    reason = unavailable()
    if reason is not None:
        print(f"kafka folders: skipped, {reason}")
        return True
    with tempfile.TemporaryDirectory() as folder:
        found = free_ports(HOST, 6)
        ports = list(zip(found[:3], found[3:], strict=True))
        cluster = LocalCluster.create(Path(folder) / "cluster", brokers=3, settings={}, ports=ports)
        client = Client(cluster.bootstrap_servers)
        with barnabas(cluster):
            client.create()
            client.produce()
            client.read_on()
        for system in (kafka, barnabas):
            with system(cluster):
                client.wait_in_sync()
                client.produce()
                client.read_on()
                client.read_all()
    print("kafka folders: passed")
    return True


if __name__ == "__main__":
    sys.exit(0 if run() else 1)
