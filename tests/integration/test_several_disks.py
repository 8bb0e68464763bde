"""Brokers with two data folders each: one fails, is replaced, and replicas move between them. Nothing is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.model.errors import ErrorCode
from barnabas.testing import EmbeddedCluster
from barnabas.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.reliability.raw import Raw, wait_until

TOPIC = "orders"
PARTITIONS = 6
WAIT_S = 60.0
SETTINGS = {"log.segment.bytes": 1 << 20}
SEGMENT = b"x" * 300_000

pytestmark = pytest.mark.timeout(300)


class Disks:
    """A cluster, its topic, and what was acknowledged."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        (created,) = self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values()
        created.result(WAIT_S)
        self.acknowledged: list[bytes] = []
        self._sent = 0
        wait_until(lambda: self.in_sync(range(PARTITIONS)), "all replicas are in sync", WAIT_S)
        self.victim = next(broker for broker in (1, 2, 3) if self._leads_in_second(broker))
        self.first, self.second = cluster.data_folders(self.victim)

    def _leads_in_second(self, broker: int) -> bool:
        second = self.cluster.data_folders(broker)[1]
        led = [number for number, (leader, _) in self.state().items() if leader == broker]
        return any((second / f"{TOPIC}-{number}").exists() for number in led)

    def in_second(self) -> list[int]:
        """Partitions that the second folder holds."""
        return [number for number in range(PARTITIONS) if (self.second / f"{TOPIC}-{number}").exists()]

    def state(self) -> dict[int, tuple[int, list[int]]]:
        """(leader, in-sync replicas) of each partition."""
        topic = self.admin.list_topics(TOPIC, timeout=30).topics[TOPIC]
        return {number: (each.leader, sorted(each.isrs)) for number, each in topic.partitions.items()}

    def in_sync(self, partitions: list[int] | range) -> bool:
        state = self.state()
        return all(state.get(number, (0, []))[1] == [1, 2, 3] for number in partitions)

    def produce(self, partitions: list[int] | range, count: int, padding: bytes = b"") -> None:
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )
        for _ in range(count):
            for number in partitions:
                self._sent += 1
                producer.produce(TOPIC, b"%d " % self._sent + padding, partition=number, on_delivery=self._delivered)
            producer.poll(0.01)
        assert producer.flush(WAIT_S) == 0, "not all was acknowledged in time"
        assert len(self.acknowledged) == self._sent

    def _delivered(self, error: object, message: Message) -> None:
        assert error is None, error
        self.acknowledged.append((message.value() or b"").partition(b" ")[0])

    def check(self) -> None:
        """Each record that was acknowledged is there once."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "check", "log_level": 0})
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        found: list[bytes] = []
        try:
            while len(found) < len(self.acknowledged):
                messages = consumer.consume(min(500, len(self.acknowledged) - len(found)), timeout=30)
                assert messages, f"{len(found)} of {len(self.acknowledged)} were read"
                found += [(each.value() or b"").partition(b" ")[0] for each in messages if each.error() is None]
        finally:
            consumer.close()
        assert sorted(found) == sorted(self.acknowledged)

    def raw(self) -> Raw:
        return Raw(int(self.cluster.bootstrap_servers.split(",")[self.victim - 1].rpartition(":")[2]))

    def move(self, partitions: list[int], path: Path | str, topic: str = TOPIC) -> dict[int, ErrorCode]:
        request = AlterReplicaLogDirsRequest(
            [AlterReplicaLogDir(str(path), [AlterReplicaLogDirTopic(topic, partitions)])]
        )
        with self.raw() as client:
            (result,) = client.call(request, AlterReplicaLogDirsResponse, 2).results
        return {each.partition_index: ErrorCode(each.error_code) for each in result.partitions}

    def places(self) -> dict[str, dict[int, bool]]:
        """For each online folder of the victim the partitions in it, and whether they are future ones."""
        with self.raw() as client:
            reply = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
        return {
            each.log_dir: {
                part.partition_index: part.is_future_key for topic in each.topics for part in topic.partitions
            }
            for each in reply.results
            if each.error_code == 0
        }


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    with EmbeddedCluster(brokers=3, data=tmp_path, settings=SETTINGS, folders=2) as cluster:
        yield Disks(cluster)


def led_elsewhere(disks: Disks, partitions: list[int]) -> bool:
    state = disks.state()
    return all(
        state[number][0] not in (disks.victim, -1) and disks.victim not in state[number][1] for number in partitions
    )


def test_a_folder_that_fails_while_the_broker_runs(disks: Disks, tmp_path: Path) -> None:
    lost = disks.in_second()
    kept = [number for number in range(PARTITIONS) if number not in lost]
    assert lost
    assert kept
    disks.produce(range(PARTITIONS), 20)
    disks.second.rename(tmp_path / "unplugged")
    disks.produce(range(PARTITIONS), 6, SEGMENT)  # new segments: their files cannot be made
    wait_until(lambda: led_elsewhere(disks, lost), "others lead what was in the folder", WAIT_S)
    assert disks.cluster.is_running(disks.victim)
    wait_until(lambda: disks.in_sync(kept), "the other folder's replicas are not affected", WAIT_S)
    assert set(disks.places()) == {str(disks.first)}
    disks.produce(range(PARTITIONS), 20)
    assert not [number for number in lost if (disks.first / f"{TOPIC}-{number}").exists()]
    assert disks.move(lost[:1], disks.first) == {lost[0]: ErrorCode.KAFKA_STORAGE_ERROR}
    assert disks.move(kept[:1], disks.second) == {kept[0]: ErrorCode.KAFKA_STORAGE_ERROR}

    disks.cluster.kill(disks.victim)
    shutil.rmtree(disks.second, ignore_errors=True)
    (tmp_path / "unplugged").rename(disks.second)
    disks.cluster.restart(disks.victim)
    wait_until(lambda: disks.in_sync(range(PARTITIONS)), "the folder is back, and its replicas catch up", WAIT_S)
    assert disks.in_second() == lost
    disks.check()


def test_a_folder_that_fails_at_a_start_and_is_replaced(disks: Disks) -> None:
    lost = disks.in_second()
    disks.produce(range(PARTITIONS), 50)
    disks.cluster.stop_broker(disks.victim)
    shutil.rmtree(disks.second)
    disks.second.write_bytes(b"not a folder")
    disks.cluster.restart(disks.victim)
    kept = [number for number in range(PARTITIONS) if number not in lost]
    wait_until(lambda: disks.in_sync(kept), "what the other folder holds is in sync", WAIT_S)
    assert led_elsewhere(disks, lost)
    disks.produce(range(PARTITIONS), 50)
    assert not [number for number in lost if (disks.first / f"{TOPIC}-{number}").exists()], "nothing begins anew"
    assert set(disks.places()) == {str(disks.first)}

    disks.cluster.stop_broker(disks.victim)
    disks.second.unlink()
    disks.cluster.restart(disks.victim)
    wait_until(lambda: disks.in_sync(range(PARTITIONS)), "the replicas are built anew", WAIT_S)
    held = {number: folder for folder, found in disks.places().items() for number in found}
    assert sorted(held) == [*range(PARTITIONS)]
    assert str(disks.second) in held.values()
    disks.produce(range(PARTITIONS), 10)
    for other in {1, 2, 3} - {disks.victim}:
        disks.cluster.kill(other)
        disks.cluster.restart(other)
        wait_until(lambda: disks.in_sync(range(PARTITIONS)), "all are in sync again", WAIT_S)
    disks.check()


def test_replicas_move_between_folders_under_load(disks: Disks) -> None:
    moved = [number for number in range(PARTITIONS) if number not in disks.in_second()]
    disks.produce(range(PARTITIONS), 6, SEGMENT)
    assert set(disks.move(moved, disks.second).values()) == {ErrorCode.NONE}
    deadline = time.monotonic() + WAIT_S
    while disks.in_second() != [*range(PARTITIONS)]:
        assert time.monotonic() < deadline, "the moves do not end"
        disks.produce(range(PARTITIONS), 20)
    wait_until(lambda: set(disks.places()[str(disks.second)]) == {*range(PARTITIONS)}, "it is described so", WAIT_S)
    assert not any(disks.places()[str(disks.second)].values()), "no future replicas are left"
    assert disks.places()[str(disks.first)] == {}
    disks.produce(range(PARTITIONS), 20)
    assert disks.move([0], "/nowhere") == {0: ErrorCode.LOG_DIR_NOT_FOUND}
    assert disks.move([0], disks.first, "absent") == {0: ErrorCode.REPLICA_NOT_AVAILABLE}

    disks.cluster.kill(disks.victim)
    disks.cluster.restart(disks.victim)
    wait_until(lambda: disks.in_sync(range(PARTITIONS)), "they are found where they were moved", WAIT_S)
    assert disks.in_second() == [*range(PARTITIONS)]
    disks.check()
