"""Three real broker processes with a real client: failover loses nothing."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

import barnabas
from barnabas.testing import EmbeddedCluster

PARTITIONS = 3


class Load:
    """An idempotent producer, and what was acknowledged to it."""

    def __init__(self, servers: str, partitions: int = PARTITIONS) -> None:
        self._partitions = partitions
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self._sent = 0
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer(settings)

    def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self._sent
            self._producer.produce(
                "orders", value, partition=self._sent % self._partitions, on_delivery=self._on_delivery
            )
            self._sent += 1
            self._producer.poll(0.002)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0, "not all was acknowledged in time"
        assert self.failed == []
        assert len(self.acknowledged) == self._sent

    def _on_delivery(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(message.value() or b"")


def read_all(servers: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "log_level": 0})
    consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=30)
            assert messages, f"{len(found)} of {count} messages were read"
            found += [message.value() or b"" for message in messages if message.error() is None]
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(300)
def test_nothing_is_lost_when_leaders_and_controllers_die() -> None:
    settings = {"num.partitions": PARTITIONS}
    with EmbeddedCluster(brokers=3, settings=settings) as cluster:
        load = Load(cluster.bootstrap_servers)
        load.send(200)
        load.flush()
        for victim in (cluster.leader_of("orders", 0), cluster.controller()):
            load.send(50)
            cluster.kill(victim)
            load.send(200)
            load.flush()
            cluster.restart(victim)
        found = read_all(cluster.bootstrap_servers, len(load.acknowledged))
        assert sorted(found) == sorted(load.acknowledged), "each once"


@pytest.mark.timeout(300)
def test_a_clean_stop_hands_over_leadership() -> None:
    with EmbeddedCluster(brokers=3, settings={"num.partitions": PARTITIONS}) as cluster:
        load = Load(cluster.bootstrap_servers)
        load.send(50)
        load.flush()
        stopped = cluster.leader_of("orders", 2)
        cluster.stop_broker(stopped)
        load.send(100)
        load.flush()
        cluster.restart(stopped)
        found = read_all(cluster.bootstrap_servers, len(load.acknowledged))
        assert sorted(found) == sorted(load.acknowledged)


@pytest.mark.timeout(300)
def test_a_leader_that_is_cut_off_from_the_cluster_holds_no_client() -> None:
    with EmbeddedCluster(brokers=3, settings={"num.partitions": PARTITIONS}) as cluster:
        load = Load(cluster.bootstrap_servers)
        load.send(50)
        load.flush()
        alone = cluster.leader_of("orders", 0)
        cluster.isolate(alone)  # clients still reach it
        load.send(100)
        load.flush()
        assert cluster.leader_of("orders", 0) != alone
        cluster.heal()
        found = read_all(cluster.bootstrap_servers, len(load.acknowledged))
        assert sorted(found) == sorted(load.acknowledged)


@pytest.mark.timeout(300)
def test_a_table_is_read_though_the_leader_hangs() -> None:
    with EmbeddedCluster(brokers=3, settings={"num.partitions": 1}) as cluster:
        load = Load(cluster.bootstrap_servers, partitions=1)
        load.send(100)
        load.flush()
        batches = barnabas.read_batches("orders", servers=cluster.bootstrap_servers, isolation="read_uncommitted")
        leader = cluster.leader_of("orders", 0)
        cluster.pause(leader)
        try:
            assert batches.read_all().num_rows == 100
        finally:
            cluster.resume(leader)
