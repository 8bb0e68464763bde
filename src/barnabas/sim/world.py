"""One simulated run under one seed: a node and its clients, first with faults, then without, when all must progress."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from barnabas.sim.client import Client, Consumer, Member, Producer
from barnabas.sim.clock import Scheduler
from barnabas.sim.cluster import SimNode
from barnabas.sim.disk import Fault
from barnabas.sim.history import History, Violation
from barnabas.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.batch import iterate
from barnabas.wire.records import decode_batch

FAULTS_MS = 12_000
PEACE_MS = 30_000
"""Of virtual time in which everything has to come to rest: longer than any session, retry and time-out."""
BETWEEN_FAULTS_MS = (100.0, 1500.0)
TOPICS = [("orders", 2), ("audit", 1)]
TRACE_LINES = 40


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.scheduler = Scheduler()
        self.history = History()
        self.trace_lines: list[str] = []
        self._digest = hashlib.sha256()
        self.is_durable = self.random.random() < 0.6
        """Only then power may be cut: what is acknowledged survives it."""
        settings = {
            "node.id": "1",
            "barnabas.durable": str(self.is_durable).lower(),
            "log.segment.bytes": str(self.random.choice([1 << 20, 1 << 30])),
            "offsets.topic.num.partitions": "2",
            "log.flush.offset.checkpoint.interval.ms": str(self.random.choice([500, 60_000])),
            "log.retention.check.interval.ms": "1000",
            "metadata.log.max.record.bytes.between.snapshots": str(self.random.choice([300, 1 << 20])),
        }
        self.node = SimNode(self.scheduler, self._fork(), 1, settings, self.trace)
        self.clients: list[Client] = []

    def _fork(self) -> random.Random:
        return random.Random(self.random.getrandbits(64))

    def trace(self, text: str) -> None:
        line = f"{self.scheduler.now_ms:10.3f} {text}"
        self.trace_lines.append(line)
        self._digest.update(line.encode())

    @property
    def digest(self) -> str:
        """The same for two runs that were the same."""
        return self._digest.hexdigest()

    def node_for(self, client: Client) -> SimNode:
        return self.node

    # Running

    def run(self, *, until_ms: float = FAULTS_MS) -> None:
        """Raises Violation. ``until_ms`` shortens the time of faults, to find the shortest run that fails."""
        try:
            self.node.start()
            self.scheduler.run_until(1000)
            self._make_topics()
            self._add_clients()
            self.scheduler.after(self.random.uniform(*BETWEEN_FAULTS_MS), lambda: self._fault(until_ms))
            self.scheduler.run_until(until_ms)
            self._make_peace()
            self._check()
        except Violation as problem:
            raise Violation(self._told(str(problem))) from problem
        except Exception as problem:
            raise Violation(self._told(f"{type(problem).__name__}: {problem}")) from problem

    def _told(self, text: str) -> str:
        trace = "\n".join(self.trace_lines[-TRACE_LINES:])
        return f"seed {self.seed}, at {self.scheduler.now_ms:.0f} ms: {text}\n{trace}"

    def _make_topics(self) -> None:
        node = self.node.node
        assert node is not None
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig("retention.ms", "-1"),
                    CreatableTopicConfig("segment.ms", self.random.choice(["200", "604800000"])),
                ],
            )
            for name, count in TOPICS
        ]
        node.broker.to_controller(CreateTopicsRequest(topics=topics), lambda _: None)
        self.scheduler.run_until(self.scheduler.now_ms + 500)

    def _add_clients(self) -> None:
        self.clients = [
            *(Producer(self, f"p{number}", self._fork(), TOPICS) for number in range(2)),
            *(Consumer(self, f"c{number}", self._fork(), TOPICS) for number in range(2)),
            *(Member(self, f"m{number}", self._fork(), "group", "orders", 2) for number in range(2)),
        ]
        for client in self.clients:
            client.start()

    # Faults

    def _fault(self, until_ms: float) -> None:
        if self.scheduler.now_ms >= until_ms:
            return
        node, rng = self.node, self.random
        faults: list[tuple[int, Callable[[], Any]]] = [
            (4, node.kill),
            (4 if self.is_durable else 0, lambda: node.kill(power=True)),
            (2, node.stop),
            (3, lambda: node.pause(rng.uniform(20, 2500))),
            (3, node.break_connections),
            (1, lambda: node.jump(rng.choice([-3_600_000, 3_600_000, -86_400_000, 172_800_000, 50]))),
            (3, lambda: self._disk_fault(Fault.ENOSPC, rng.choice(["write", "write", "create", "write_file"]))),
            (1, lambda: self._disk_fault(Fault.EIO, "sync")),
        ]
        weights = [weight for weight, _ in faults]
        rng.choices(faults, weights)[0][1]()
        self.scheduler.after(rng.uniform(*BETWEEN_FAULTS_MS), lambda: self._fault(until_ms))

    def _disk_fault(self, fault: Fault, operation: str) -> None:
        if self.node.is_serving:
            self.trace(f"the next {operation} of node {self.node.node_id} fails with {fault.name}")
            self.node.disk.fail_next_of(operation, fault)

    # The end

    def _make_peace(self) -> None:
        """No more faults: every client must make progress, and producers must learn what became of their last batch."""
        self.trace("peace")
        self.node.disk.heal()
        if self.node.node is None:
            self.node.start()
        before = self._progress()
        self.scheduler.run_until(self.scheduler.now_ms + PEACE_MS / 2)
        stuck = [name for name, count in self._progress().items() if count <= before[name]]
        if stuck:
            raise Violation(f"without faults these clients make no progress: {stuck}")
        for client in self.clients:
            client.is_done = True
        self.scheduler.run_until(self.scheduler.now_ms + PEACE_MS / 2)

    def _progress(self) -> dict[str, int]:
        history = self.history
        acknowledged = sum(len(offsets) for offsets in history.acknowledged.values())
        progress = {"producers": acknowledged, "group members' commits": history.commits}
        for client in self.clients:
            if isinstance(client, Consumer):
                progress[client.name] = sum(client.positions.values())
        return progress

    def _check(self) -> None:
        node = self.node.node
        if node is None or not self.node.is_serving:
            raise Violation("the node does not serve at the end")
        for topic, count in TOPICS:
            for number in range(count):
                partition = node.broker.partitions.get(topic, number)
                if partition is None:
                    raise Violation(f"{topic}-{number} is gone")
                self.history.check_log(topic, number, _content(partition))


def _content(partition: Any) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20)
        if result.records is None:
            break
        data = result.records.read()
        for position, _ in iterate(data):
            for record in decode_batch(data, position):
                found[record.offset] = bytes(record.value or b"")
        offset = result.next_offset
    return found


def run_seed(seed: int) -> World:
    world = World(seed)
    world.run()
    return world


def shortest_failure(seed: int) -> tuple[float, Violation]:
    """The least time of faults, to a tenth of a second, with which the seed still fails, and how."""
    low, high = 0.0, float(FAULTS_MS)
    failure: Violation | None = None
    while high - low > 100 or failure is None:
        middle = high if failure is None else (low + high) / 2
        try:
            World(seed).run(until_ms=middle)
        except Violation as problem:
            failure, high = problem, middle
        else:
            if failure is None:
                raise ValueError(f"seed {seed} does not fail")
            low = middle
    return high, failure
