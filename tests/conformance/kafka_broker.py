"""An Apache Kafka broker in a cluster of Barnabas: ``python -m tests.conformance.kafka_broker``.

It registers with our controllers, follows our leaders and leads partitions that our brokers follow. Then it is killed
and comes back, and one of our brokers is killed, while a producer writes with acks=all: nothing is lost.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.wire import Client
from barnabas.testing import EmbeddedCluster
from barnabas.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from bench.systems import answers, free_port, libraries, unavailable

KAFKA_ID = 4
TOPIC, PARTITIONS = "mixed", 8
MESSAGES = 4000
WAIT_S = 90.0


class KafkaBroker:
    """A broker without the controller role that joins a cluster."""

    def __init__(self, folder: Path, cluster: EmbeddedCluster) -> None:
        self.port = free_port()
        self._settings = folder / "kafka.properties"
        self._output = folder / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "node.id": str(KAFKA_ID),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": cluster.controller_servers,
            "log.dirs": str(folder / "kafka-data"),
        }
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = ["format", "-t", cluster.cluster_id, "-c", str(self._settings), "--no-initial-controllers"]
        subprocess.run([*self._java("kafka.tools.StorageTool"), *words], check=True, capture_output=True)

    @staticmethod
    def _java(name: str) -> list[str]:
        return ["java", "-Xmx512m", "-cp", f"{libraries()}/*", name]

    def start(self) -> None:
        with self._output.open("ab") as output:
            command = [*self._java("kafka.Kafka"), str(self._settings)]
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        wait("Kafka serves", lambda: answers(self.port))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def wait(what: str, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() >= deadline_s:
            raise AssertionError(f"{what}: not within {WAIT_S:.0f} s")
        time.sleep(0.2)
    print(f"ok {what}", flush=True)


class Check:
    def __init__(self, cluster: EmbeddedCluster, kafka: KafkaBroker) -> None:
        self.cluster = cluster
        self.kafka = kafka
        servers = {"bootstrap.servers": f"{cluster.bootstrap_servers},127.0.0.1:{kafka.port}", "log_level": 0}
        self._servers = servers
        self.admin = AdminClient(servers)
        self._producer = Producer({**servers, "enable.idempotence": True})
        self._acknowledged = 0

    def run(self) -> None:
        wait("the brokers are four", lambda: len(self.admin.list_topics(timeout=10).brokers) == 4)
        self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 4)])[TOPIC].result(30)
        wait("Kafka leads some partitions", lambda: KAFKA_ID in self._leaders())
        self._produce()
        wait("every replica is in sync", lambda: self._in_sync(4))
        self._follow_a_log_that_begins_later()
        self.kafka.kill()
        self._produce()
        wait("others lead in place of Kafka", lambda: KAFKA_ID not in self._leaders())
        self.kafka.start()
        wait("Kafka's replicas are in sync again", lambda: self._in_sync(4))
        ours = self.cluster.leader_of(TOPIC, 0)
        self.cluster.kill(ours)
        self._produce()
        self.cluster.restart(ours)
        wait("our replicas are in sync again", lambda: self._in_sync(4))
        wait("each message is there once", lambda: self._read() == sorted(range(self._acknowledged)))

    def _follow_a_log_that_begins_later(self) -> None:
        """Our replica is added to a partition of Kafka's whose first records are deleted."""
        name = "begun"
        self.admin.create_topics([NewTopic(name, replica_assignment=[[KAFKA_ID]], num_partitions=1)])[name].result(30)
        for number in range(100):
            self._producer.produce(name, b"%d" % number)
        wait("Kafka leads alone", lambda: self._producer.flush(60) == 0)
        place = TopicPartition(name, 0, 60)
        self.admin.delete_records([place])[place].result(30)
        partition = ReassignablePartition(partition_index=0, replicas=[KAFKA_ID, 1])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[partition])])
        with Client(self.cluster.bootstrap_servers) as client:
            answer = client.call(request, AlterPartitionReassignmentsResponse)
        assert not answer.error_code, answer
        wait("our replica follows from where Kafka's log begins", lambda: self._replicas_in_sync(name) == {KAFKA_ID, 1})

    def _replicas_in_sync(self, topic: str) -> set[int]:
        return set(self.admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)

    def _leaders(self) -> set[int]:
        topic = self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
        return {partition.leader for partition in topic.partitions.values()}

    def _in_sync(self, count: int) -> bool:
        topic = self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
        return all(len(partition.isrs) == count for partition in topic.partitions.values())

    def _produce(self) -> None:
        failed: list[str] = []
        for number in range(self._acknowledged, self._acknowledged + MESSAGES):
            self._producer.produce(
                TOPIC,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            self._producer.poll(0)
        wait("a producer writes to all partitions", lambda: self._producer.flush(60) == 0 and not failed)
        self._acknowledged += MESSAGES

    def _read(self) -> list[int]:
        consumer = Consumer({**self._servers, "group.id": "check"})
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        found: list[int] = []
        while len(found) < self._acknowledged and (messages := consumer.consume(1000, timeout=10)):
            found += [int(message.value() or b"-1") for message in messages if message.error() is None]
        consumer.close()
        return sorted(found)


@contextmanager
def mixed(folder: Path) -> Iterator[Check]:
    with EmbeddedCluster(brokers=3) as cluster:
        kafka = KafkaBroker(folder, cluster)
        try:
            kafka.start()
            yield Check(cluster, kafka)
        finally:
            kafka.kill()


def run() -> bool:
    reason = unavailable()
    if reason is not None:
        print(f"kafka broker: skipped, {reason}")
        return True
    with tempfile.TemporaryDirectory() as folder, mixed(Path(folder)) as check:
        check.run()
    print("kafka broker: passed")
    return True


if __name__ == "__main__":
    sys.exit(0 if run() else 1)
