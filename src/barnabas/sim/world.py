"""One simulated run under one seed: nodes and clients, first with faults, then without, when all must progress."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping

from barnabas.model.errors import InvariantBroken
from barnabas.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.sim import formatting
from barnabas.sim.check import Checker, content_of
from barnabas.sim.client import Client, Consumer, Member, Producer
from barnabas.sim.clock import Scheduler
from barnabas.sim.cluster import SimNode
from barnabas.sim.faults import Faults, add_voter
from barnabas.sim.history import History, Violation
from barnabas.sim.network import Links
from barnabas.sim.recycler import Recycler
from barnabas.sim.transactional_load import STATE_PARTITIONS, TransactionalLoad
from barnabas.sim.transactional_load import TOPICS as TRANSACTIONAL_TOPICS
from barnabas.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.schema import Message

SECONDS = 30
"""Of virtual time in a run, unless another number is given."""
PEACE_MS = 22_000
"""The end of a run without faults, in which everything has to come to rest: longer than any session and time-out."""
QUIET_MS = 9_000
"""Of it at the end, when clients have stopped: members expire, and their group rebalances once more."""
START_MS = 15_000
BETWEEN_FAULTS_MS = (100.0, 1500.0)
BETWEEN_ADDITIONS_MS = 500.0
TOPICS = [("orders", 2), ("audit", 1)]
TRACE_LINES = 40
CHECK_EVERY_EVENTS = 50
CHECK_CLOSELY_EVERY_EVENTS = 1000
MAX_DRIFT = 0.01
PACES = [1.0, 3.0, 6.0]
PEACEFUL_PACE = 8.0


class World:
    """Nodes on simulated machines, what clients saw of them, and what must hold. Everything follows from the seed."""

    def __init__(
        self,
        seed: int,
        node_count: int = 1,
        *,
        is_durable: bool | None = None,
        settings: Mapping[str, str] | None = None,
        has_transactions: bool = False,
    ) -> None:
        """``settings`` come over those that the seed chooses.

        What a seed chooses does not depend on ``has_transactions``, which adds transactional clients.
        """
        self.seed = seed
        self.random = random.Random(seed)
        self.scheduler = Scheduler()
        self.history = History()
        self.links = Links()
        self.load = TransactionalLoad(seed) if has_transactions else None
        self.topics = [*TOPICS, *(TRANSACTIONAL_TOPICS if has_transactions else [])]
        self.trace_lines: list[str] = []
        self._digest = hashlib.sha256()
        self.is_durable = self.random.random() < 0.6 if is_durable is None else is_durable
        """Only then power may be cut: what is acknowledged survives it."""
        self.pace = self.random.choice(PACES)
        self.is_at_peace = False
        self.nodes: dict[int, SimNode] = {}
        by_host: dict[str, SimNode] = {}
        chosen = {**self._settings(node_count), **(settings or {})}
        for number in range(1, node_count + 1):
            own = {**chosen, "node.id": str(number)}
            rate = self.random.choice([1.0, 1 + self.random.uniform(-MAX_DRIFT, MAX_DRIFT)])
            node = SimNode(self.scheduler, self._fork(), number, own, self.trace, self.links, by_host, rate)
            self.nodes[number] = by_host[node.host] = node
        if node_count > 1:
            formatting.format_all(list(self.nodes.values()), self._fork())
        self.clients: list[Client] = []
        self.checker = Checker(self.nodes, self.history)
        self._events = 0

    def _settings(self, node_count: int) -> dict[str, str]:
        settings = {
            "barnabas.durable": str(self.is_durable).lower(),
            "log.segment.bytes": str(self.random.choice([1 << 20, 1 << 30])),
            "offsets.topic.num.partitions": "2",
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "500",
            "log.flush.offset.checkpoint.interval.ms": str(self.random.choice([500, 60_000])),
            "log.retention.check.interval.ms": "1000",
            "metadata.log.max.record.bytes.between.snapshots": str(self.random.choice([300, 1 << 20])),
        }
        if node_count > 1:
            servers = ",".join(f"node-{number}:9093" for number in range(1, node_count + 1))
            settings |= {
                "controller.quorum.bootstrap.servers": servers,
                "controller.quorum.fetch.snapshot.max.bytes": str(self.random.choice([700, 1 << 20])),
                "default.replication.factor": "3",
                "offsets.topic.replication.factor": "3",
                "min.insync.replicas": "2",
                "replica.lag.time.max.ms": "3000",
            }
        return settings if self.load is None else settings | self.load.settings(node_count)

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

    def after(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.scheduler.after(delay_ms, callback)

    # Running

    def run(self, *, seconds: int = SECONDS, faults_ms: float | None = None) -> None:
        """Raises Violation. ``faults_ms`` shortens the time of faults, to find the shortest run that fails."""
        self.explained(lambda: self._run(faults_time_ms(seconds) if faults_ms is None else faults_ms))

    def explained(self, run: Callable[[], None]) -> None:
        """Whatever goes wrong in ``run`` is a Violation, with the seed and the end of the trace."""
        try:
            run()
        except Violation as problem:
            raise Violation(self.explain(str(problem))) from problem
        except (Exception, InvariantBroken) as problem:
            raise Violation(self.explain(f"{type(problem).__name__}: {problem}")) from problem

    def _run(self, faults_ms: float) -> None:
        self.begin()
        self._add_clients()
        faults = Faults(self, self._fork(), [client.name for client in self.clients])
        end_ms = self.scheduler.now_ms + faults_ms
        self.after(self.random.uniform(*BETWEEN_FAULTS_MS), lambda: self._strike(faults, end_ms))
        self.run_until(end_ms)
        self._make_peace()
        self.check_end()

    def explain(self, text: str) -> str:
        trace = "\n".join(self.trace_lines[-TRACE_LINES:])
        return f"seed {self.seed}, at {self.scheduler.now_ms:.0f} ms: {text}\n{trace}"

    def run_until(self, end_ms: float) -> None:
        self.scheduler.run_until(end_ms, on_event=self.on_event)

    def on_event(self) -> None:
        self._events += 1
        if self._events % CHECK_CLOSELY_EVERY_EVENTS == 0:
            self.checker.look_closely()
        elif self._events % CHECK_EVERY_EVENTS == 0:
            self.checker.look()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline_ms = self.scheduler.now_ms + START_MS
        while not condition():
            if self.scheduler.now_ms >= deadline_ms:
                raise Violation(f"without faults {what} within {START_MS} ms")
            self.run_until(self.scheduler.now_ms + 100)

    def begin(self) -> None:
        """Starts the nodes and creates the topics."""
        for node in self.nodes.values():
            node.start()
        self.wait_for(lambda: all(node.is_serving for node in self.nodes.values()), "not all nodes serve")
        self.ask_controller(CreateTopicsRequest(topics=[self.creatable(*topic) for topic in self.topics]))
        self.wait_for(self.has_topics, "the topics are not created")

    def creatable(self, name: str, count: int) -> CreatableTopic:
        rng = self.random if self.load is None or (name, count) in TOPICS else self.load.random
        configs = [
            CreatableTopicConfig("retention.ms", "-1"),
            CreatableTopicConfig("segment.ms", rng.choice(["200", "604800000"])),
        ]
        return CreatableTopic(name, count, min(3, len(self.nodes)), configs=configs)

    def has_topics(self) -> bool:
        return all(
            name in node.node.broker.image.topics
            for node in self.nodes.values()
            if node.node is not None
            for name, _ in self.topics
        )

    @property
    def movable_topics(self) -> list[tuple[str, int]]:
        """Those that operators reassign."""
        return self.topics if self.load is None else [*self.topics, (TRANSACTIONS_TOPIC, STATE_PARTITIONS)]

    def ask_controller(self, request: Message) -> None:
        """Through any node that serves; the answer does not matter."""
        serving = [node for node in self.nodes.values() if node.is_serving and node.node is not None]
        if serving:
            node = self.random.choice(serving).node
            assert node is not None
            node.broker.to_controller(request, lambda _: None)

    def _add_clients(self) -> None:
        self.clients = [
            *(Producer(self, f"p{number}", self._fork(), TOPICS) for number in range(2)),
            *(Consumer(self, f"c{number}", self._fork(), TOPICS) for number in range(2)),
            *(Member(self, f"m{number}", self._fork(), "group", "orders", 2) for number in range(2)),
            Recycler(self, "r0", self._fork()),
            *([] if self.load is None else self.load.make_clients(self)),
        ]
        for client in self.clients:
            client.start()

    def _strike(self, faults: Faults, end_ms: float) -> None:
        if self.scheduler.now_ms < end_ms:
            faults.strike()
            self.after(self.random.uniform(*BETWEEN_FAULTS_MS), lambda: self._strike(faults, end_ms))

    # The end

    def _make_peace(self) -> None:
        """No more faults: every client must make progress, and producers must learn what became of their last batch."""
        self.trace("peace")
        self.is_at_peace = True
        self.pace = PEACEFUL_PACE
        self.links.heal()
        for node in self.nodes.values():
            node.heal()
            if node.node is None:
                node.start()
        if len(self.nodes) > 1:
            self.complete_voters()
        before = self._progress()
        self.run_until(self.scheduler.now_ms + PEACE_MS - QUIET_MS)
        stuck = [name for name, count in self._progress().items() if count <= before[name]]
        if stuck:
            raise Violation(f"without faults these clients make no progress: {stuck}")
        for client in self.clients:
            client.is_done = True
        self.run_until(self.scheduler.now_ms + QUIET_MS)
        if self.load is not None:
            self.load.settle(self)

    def complete_voters(self) -> None:
        """Adds the voters that an operator has removed, one at a time; a removal may still be on its way."""
        leader = next((node.node for node in self.nodes.values() if node.node and node.node.driver.is_leader), None)
        present = self.nodes if leader is None else {voter.node_id for voter in leader.driver.machine.voters}
        missing = sorted(set(self.nodes) - set(present))
        if missing:
            self.ask_controller(add_voter(self.nodes[missing[0]]))
        self.after(BETWEEN_ADDITIONS_MS, self.complete_voters)

    def _progress(self) -> dict[str, int]:
        history = self.history
        acknowledged = sum(len(offsets) for offsets in history.acknowledged.values())
        progress = {"producers": acknowledged, "group members' commits": history.commits}
        for client in self.clients:
            if isinstance(client, Consumer):
                progress[client.name] = sum(client.positions.values())
            elif isinstance(client, Recycler):
                progress[client.name] = client.rounds
        return progress if self.load is None else progress | self.load.progress()

    def check_end(self) -> None:
        """After a while without faults: everything serves, is in sync and holds what was acknowledged."""
        for node in self.nodes.values():
            if node.node is None or not node.is_serving:
                raise Violation(f"node {node.node_id} does not serve at the end")
            voters = sorted(voter.node_id for voter in node.node.driver.machine.voters)
            if voters != sorted(self.nodes):
                raise Violation(f"node {node.node_id} knows the voters {voters} at the end")
        self.checker.look_closely()
        self.checker.check_settled([*self.topics, *self._internal_topics()])
        for topic, count in self.topics:
            for number in range(count):
                for replica in self.checker.replicas_of(topic, number):
                    self.history.check_log(topic, number, content_of(replica))
        if self.load is not None:
            self.load.check(self)

    def _internal_topics(self) -> list[tuple[str, int]]:
        offsets = [(OFFSETS_TOPIC, 2)] if self.history.commits else []
        return offsets if self.load is None else [*offsets, (TRANSACTIONS_TOPIC, STATE_PARTITIONS)]


def faults_time_ms(seconds: int) -> float:
    return max(1000.0, seconds * 1000.0 - PEACE_MS)


def run_seed(seed: int, node_count: int = 1, seconds: int = SECONDS, *, has_transactions: bool = True) -> World:
    world = World(seed, node_count, has_transactions=has_transactions)
    world.run(seconds=seconds)
    return world


def shortest_failure(
    seed: int, node_count: int = 1, seconds: int = SECONDS, *, has_transactions: bool = True
) -> tuple[float, Violation]:
    """The least time of faults, to a tenth of a second, with which the seed still fails, and how."""
    low, high = 0.0, faults_time_ms(seconds)
    failure: Violation | None = None
    while high - low > 100 or failure is None:
        middle = high if failure is None else (low + high) / 2
        try:
            World(seed, node_count, has_transactions=has_transactions).run(faults_ms=middle)
        except Violation as problem:
            failure, high = problem, middle
        else:
            if failure is None:
                raise ValueError(f"seed {seed} does not fail")
            low = middle
    return high, failure
