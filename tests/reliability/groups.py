"""kill -9 under load with groups of three members: ``python -m tests.reliability.groups --rounds 50``.

Two groups, one cooperative and one eager, read what one idempotent producer writes, and commit as they go; members
leave and others come. Whatever is killed when: every acknowledged message is there and was read by both groups;
committed offsets never go back, in no record of ``__consumer_offsets``; no generation gives a partition to two members;
generations go up; and after every start both groups find their feet: they read and commit to the end.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place

from barnabas.client.wire import Client, admin
from barnabas.client.wire import groups as group_client
from barnabas.client.wire.data import fetch
from barnabas.client.wire.decoding import decode
from barnabas.core.group import records as framing
from barnabas.model.ids import OFFSETS_TOPIC, TopicPartition
from barnabas.wire import codec
from barnabas.wire.stored.classic_group import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from barnabas.wire.stored.consumer_protocol import ConsumerProtocolAssignment
from tests.reliability.load import TOPIC, Load, verify
from tests.reliability.process import BrokerProcess

PARTITIONS = 6
MEMBERS = 3
STRATEGIES = ("cooperative-sticky", "range")
FEET_TIMEOUT_S = 60.0


class SlowLoad(Load):
    """A few thousand messages a second: the members are to keep up."""

    def _send(self, partition: int) -> None:
        super()._send(partition)
        time.sleep(0.0005)


class Worker:
    """A member on a thread of its own: reads, remembers, commits."""

    def __init__(self, servers: str, group: Group) -> None:
        self._group = group
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group.name,
                "partition.assignment.strategy": group.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(1000, 0.05)
            found = [(message.partition(), message.offset()) for message in messages if message.error() is None]
            if found:
                self._group.read(found)
                self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        try:
            told = self._consumer.commit(asynchronous=False)
        except KafkaException:
            return  # a rebalance, or nobody to commit to: what was read is read again
        self._group.acknowledged([part for part in told or () if part.error is None and part.offset >= 0])

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), "a member does not end"


class Group:
    """Named for how its members assign."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self._servers = servers
        self._lock = threading.Lock()
        self.seen: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.committed: dict[int, int] = {}
        self.workers = [Worker(servers, self) for _ in range(MEMBERS)]

    def read(self, found: list[tuple[int, int]]) -> None:
        with self._lock:
            for partition, offset in found:
                self.seen[partition].add(offset)

    def acknowledged(self, told: list[Place]) -> None:
        with self._lock:
            for part in told:
                self.committed[part.partition] = max(part.offset, self.committed.get(part.partition, 0))

    def replace_one(self, chance: random.Random) -> None:
        leaver = self.workers.pop(chance.randrange(len(self.workers)))
        leaver.stop()
        self.workers.append(Worker(self._servers, self))

    def check_feet(self, client: Client) -> float:
        """Waits until the group has committed all that there is now; returns how long that took."""
        begun = time.monotonic()
        with self._lock:
            promised = dict(self.committed)
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = admin.list_offsets(client, dict.fromkeys(places, admin.LATEST))
        while True:
            held = group_client.committed_offsets(client, self.name)
            offsets = {place: held[place].offset if place in held else 0 for place in places}
            for place in places:
                assert offsets[place] >= promised.get(place.partition, 0), f"{self.name}: {place} went back"
            if all(offsets[place] >= ends[place].offset for place in places):
                return time.monotonic() - begun
            assert time.monotonic() - begun < FEET_TIMEOUT_S, f"{self.name} does not find its feet: {offsets}, {ends}"
            time.sleep(0.05)

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.join()


def stored_records(client: Client) -> Iterator[framing.GroupRecord]:
    """All of ``__consumer_offsets``, each partition in order."""
    places = [TopicPartition(OFFSETS_TOPIC, number) for number in client.topic(OFFSETS_TOPIC).partitions]
    positions = {place: found.offset for place, found in admin.list_offsets(client, dict.fromkeys(places, -2)).items()}
    ends = {place: found.offset for place, found in admin.list_offsets(client, dict.fromkeys(places, -1)).items()}
    while positions := {place: offset for place, offset in positions.items() if offset < ends[place]}:
        for fetched in fetch(client, positions):
            decoded = decode(fetched, positions[fetched.partition])
            positions[fetched.partition] = decoded.next_offset
            for record in decoded.records:
                known = framing.decode(record.key, record.value)
                if known is not None:
                    yield known


def check_history(client: Client) -> int:
    """What the log says of generations and offsets; returns how many generations there were."""
    generations: dict[str, int] = {}
    offsets: dict[tuple[str, int], int] = {}
    count = 0
    for key, value, _ in stored_records(client):
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
            place = key.group, key.partition
            assert value.offset >= offsets.get(place, 0), (
                f"{place} was committed at {offsets[place]}, then {value.offset}"
            )
            offsets[place] = value.offset
        elif isinstance(value, GroupMetadataValue):
            count += 1
            assert value.generation > generations.get(key.group, 0), f"{key.group}: generation {value.generation} again"
            generations[key.group] = value.generation
            owned = [number for member in value.members for number in assigned(member.assignment)]
            assert len(owned) == len(set(owned)), f"{key.group}, generation {value.generation}: two own a partition"
    assert set(generations) == set(STRATEGIES)
    return count


def assigned(data: bytes) -> list[int]:
    if len(data) < 2:
        return []
    found = codec.decode(ConsumerProtocolAssignment, 0, data, 2)[0]
    return [number for each in found.assigned_partitions for number in each.partitions]


def run(rounds: int, seed: int, *, quiet: bool = False) -> int:
    """Returns how many messages were acknowledged."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="barnabas-groups-") as folder:
        broker = BrokerProcess(folder).start()
        groups: list[Group] = []
        try:
            load = SlowLoad(broker.bootstrap_servers, PARTITIONS)
            load.start()
            groups += [Group(broker.bootstrap_servers, name) for name in STRATEGIES]
            slowest = max(settle(broker, groups))
            for number in range(rounds):
                time.sleep(chance.uniform(0.0, 0.6))
                for group in groups:
                    if chance.random() < 0.5:
                        group.replace_one(chance)
                time.sleep(chance.uniform(0.0, 0.6))
                broker.kill()
                broker.start()
                feet = settle(broker, groups)
                slowest = max(slowest, *feet)
                if not quiet:
                    print(f"killed {number + 1} of {rounds}: feet after {max(feet):.2f} s", flush=True)
            promises = load.finish()
            settle(broker, groups)
            for group in groups:
                group.stop()
            verify(broker.bootstrap_servers, promises)
            for group in groups:
                for partition, numbers in enumerate(promises.acknowledged):
                    missing = set(numbers.values()) - group.seen[partition]
                    assert not missing, f"{group.name} never read {len(missing)} of partition {partition}"
            with Client(broker.bootstrap_servers) as client:
                count = check_history(client)
            if not quiet:
                print(f"{count} generations; the slowest group took {slowest:.2f} s to find its feet")
        finally:
            for group in groups:
                for worker in group.workers:
                    worker.stop()
            broker.kill()
    return promises.count


def settle(broker: BrokerProcess, groups: list[Group]) -> list[float]:
    with Client(broker.bootstrap_servers) as client:
        return [group.check_feet(client) for group in groups]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    count = run(options.rounds, options.seed)
    print(f"{options.rounds} kills: {count} acknowledged messages were read by both groups, no offset went back")


if __name__ == "__main__":
    main()
