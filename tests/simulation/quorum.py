"""A simulated quorum: real drivers, disks that lose what is not synced, a network that loses, cuts and reorders.

One seed decides everything. Every message is encoded and decoded. What must always hold is checked after each event:
one leader an epoch, a high watermark that never goes back, and the same committed records at every node. When the
faults end, the quorum has to elect, to commit and to bring every node up to date within ``HEALED_MS``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.core.metadata.image import MetadataImage
from barnabas.core.raft.machine import QuorumSettings, Voter
from barnabas.core.raft.voters import VoterNode, VoterSet
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.ports import Address, DiskError
from barnabas.model.topic_settings import TopicSettings
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.raft_driver import CommittedRecords, RaftDriver, Snapshot
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.sim.disk import SimDisk
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.wire import codec
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.schema import Message, versions_of
from barnabas.wire.stored.metadata_topics import ConfigRecord

CLUSTER = "cluster"
DIRECTORY = "/data/__cluster_metadata-0"
LOG_SETTINGS = TopicSettings(retention_ms=-1, retention_bytes=-1, max_message_bytes=8 << 20, segment_bytes=4096)
SETTINGS = QuorumSettings(snapshot_max_bytes=700, fetch_max_bytes=2000)
FAULTY_MS = 8_000
HEALED_MS = 9_000
EVERY_MS = 130
"""How often a client appends."""


class Broken(AssertionError):
    """Something that must always hold does not."""


def address_of(node_id: int) -> Address:
    return Address(f"node{node_id}", 9093)


class Record:
    """The state of a node's listener: the values that are committed, in order."""

    def __init__(self, world: World, node: Node) -> None:
        self._world = world
        self._node = node
        self.committed_offset = 0
        self.raft_epoch = 0
        self.values: list[str] = []
        self.is_active = False
        self.pending: list[tuple[int, str]] = []
        """Appended by this node as the leader: (next offset, value)."""

    def load(self, records: list[Message], next_offset: int, raft_epoch: int) -> None:
        self.values = []
        self._take(records, next_offset, raft_epoch)

    def _take(self, records: Any, next_offset: int, raft_epoch: int) -> None:
        for record in records:
            self.values.append(record.name)
            self._world.check_value(self._node, len(self.values) - 1, record.name)
        self.committed_offset, self.raft_epoch = next_offset, raft_epoch

    def on_committed(self, batch: CommittedRecords) -> None:
        if batch.next_offset <= self.committed_offset:
            raise Broken(f"node {self._node.id}: {batch.next_offset} is delivered after {self.committed_offset}")
        self._take(batch.records, batch.next_offset, batch.raft_epoch)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.load(snapshot.records, snapshot.end_offset, snapshot.raft_epoch)
        self._world.snapshots_installed += 1

    def on_leader(self, leader_id: int, raft_epoch: int) -> None: ...

    def on_leadership(self, raft_epoch: int) -> None:
        self.is_active = True

    def on_resigned(self) -> None:
        self.is_active = False
        self.pending = []

    def on_high_watermark(self) -> None:
        driver = self._node.driver
        while self.pending and self.pending[0][0] <= driver.high_watermark:
            next_offset, value = self.pending.pop(0)
            self._take([ConfigRecord(name=value)], next_offset, driver.raft_epoch)
            self._world.acknowledged.append(value)


class Node:
    def __init__(self, world: World, node_id: int, voters: VoterSet) -> None:
        self.world = world
        self.id = node_id
        self.voter = world.voter(node_id)
        self.disk = SimDisk(world.random.randrange(1 << 30))
        self.disk.is_slow = True
        self.disk.on_waiting = self._sync_later
        self.is_up = False
        self.failure: str | None = None
        self.sync_ms = 2.0
        self.disk.make_directory(DIRECTORY)
        if len(voters):
            path = f"{DIRECTORY}/{metadata_snapshot.file_name(0, 0)}"
            entries = metadata_snapshot.voter_entries(voters)
            metadata_snapshot.write(self.disk, path, [], raft_epoch=0, timestamp_ms=0, quorum=entries)

    def start(self) -> None:
        world = self.world
        self.is_up = True
        self.clock = NodeClock(world.scheduler)
        self.disk.is_slow = False
        log = Log.open(
            self.disk,
            DIRECTORY,
            TopicPartition("__cluster_metadata", 0),
            LOG_SETTINGS,
            now_ms=self.clock.now_ms(),
            on_failure=lambda _, reason: self._fail(reason),
        )
        self.disk.is_slow = True
        self.record = Record(world, self)
        self.driver = RaftDriver(
            disk=self.disk,
            clock=self.clock,
            random=random.Random(world.random.randrange(1 << 30)),
            log=log,
            directory=DIRECTORY,
            cluster_id=CLUSTER,
            me=self.voter,
            endpoints=[("CONTROLLER", *address_of(self.id))],
            bootstrap=[address_of(node_id) for node_id in world.nodes],
            network=Port(world, self, self.clock),
            settings=SETTINGS,
            listener=self.record,
            report=lambda *_, **__: None,
            on_failure=self._fail,
        )
        self.high_watermark = -1
        loaded = self.driver.load()
        self.record.load(loaded.records, loaded.next_offset, 0)
        self.driver.start()

    def restart(self) -> None:
        if not self.is_up:
            self.start()

    def _fail(self, reason: str) -> None:
        raise Broken(f"node {self.id} failed: {reason}")

    def _sync_later(self) -> None:
        if self.is_up:
            self.clock.run(self.world.random.uniform(0.1, self.sync_ms), self.disk.release)

    def crash(self, *, power: bool) -> None:
        self.is_up = False
        self.clock.kill()
        if power:
            self.disk.power_off()
            self.disk.crash()
        else:
            self.disk.kill()

    def snapshot(self) -> None:
        """As the Snapshotter does, here and now."""
        record, driver = self.record, self.driver
        if record.committed_offset <= driver.log.log_start_offset or not record.raft_epoch:
            return
        path = f"{DIRECTORY}/{metadata_snapshot.file_name(record.committed_offset, record.raft_epoch)}"
        voters = metadata_snapshot.voter_entries(driver.machine.history.before(record.committed_offset))
        values = [ConfigRecord(name=value) for value in record.values]
        place = {"raft_epoch": record.raft_epoch, "timestamp_ms": 0}
        metadata_snapshot.write(self.disk, path, values, quorum=voters, **place)
        image = MetadataImage(next_offset=record.committed_offset, raft_epoch=record.raft_epoch)
        driver.let_go_before(image, driver.bytes_since_snapshot)


class Port:
    """The network of one incarnation of a node."""

    def __init__(self, world: World, node: Node, clock: NodeClock) -> None:
        self._world = world
        self._node = node
        self._clock = clock

    def send(self, address: Address, lane: str, request: Message, timeout_ms: int, then: Callable[[Any], None]) -> None:
        world, done = self._world, False
        target = world.nodes[int(address.host.removeprefix("node"))]

        def finish(outcome: Any) -> None:
            nonlocal done
            if not done:
                done = True
                then(outcome)

        def arrived() -> None:
            if not target.is_up:
                if world.is_open(target, self._node):
                    self._clock.run(world.latency_ms(), lambda: finish(ApiError(ErrorCode.NETWORK_EXCEPTION)))
                return
            world.receive(target, _copy(request), answered)

        def answered(response: Message) -> None:
            copied = _copy(response)
            if world.passes(target, self._node):
                self._clock.run(world.latency_ms(), lambda: finish(copied))

        self._clock.run(timeout_ms, lambda: finish(ApiError(ErrorCode.REQUEST_TIMED_OUT)))
        if world.passes(self._node, target):
            world.scheduler.after(world.latency_ms(), arrived)


def _copy(message: Message) -> Message:
    """Through the bytes that a socket would carry."""
    cls = type(message)
    version = versions_of(cls).last
    chunks: list[Any] = list(codec.encode(message, version))
    parts = [chunk if isinstance(chunk, bytes | bytearray | memoryview) else chunk.read() for chunk in chunks]
    return codec.decode(cls, version, b"".join(parts))[0]


class World:
    def __init__(self, seed: int, *, voters: int = 3, observers: int = 0) -> None:
        self.random = random.Random(seed)
        self.scheduler = Scheduler()
        self.history: list[str] = []
        """The committed values, as the first node that saw each says."""
        self.acknowledged: list[str] = []
        self.leaders: dict[int, int] = {}
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.slow_ms = 5.0
        self.snapshots_installed = 0
        self.changes_done = 0
        self.is_quiet = False
        self._count = 0
        first = VoterSet(
            tuple(VoterNode(self.voter(n), (("CONTROLLER", *address_of(n)),)) for n in range(1, voters + 1))
        )
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, voters + observers + 1):
            self.nodes[node_id] = Node(self, node_id, first if node_id <= voters else VoterSet())

    @staticmethod
    def voter(node_id: int) -> Voter:
        return Voter(node_id, bytes([node_id]) * 16)

    # The network

    def is_open(self, sender: Node, receiver: Node) -> bool:
        return (sender.id, receiver.id) not in self.cut

    def passes(self, sender: Node, receiver: Node) -> bool:
        return self.is_open(sender, receiver) and self.random.random() >= self.loss

    def latency_ms(self) -> float:
        return self.random.uniform(0.2, self.slow_ms)

    def receive(self, target: Node, request: Message, answered: Callable[[Message], None]) -> None:
        if isinstance(request, ApiVersionsRequest):
            answered(ApiVersionsResponse(supported_features=[SupportedFeatureKey("kraft.version", 0, 1)]))
            return
        clock = target.clock

        def reply(response: Message) -> None:
            if target.is_up and target.clock is clock:
                answered(response)

        clock.run(0, lambda: target.driver.receive(request, reply))

    # Checks

    def check_value(self, node: Node, index: int, value: str) -> None:
        if index < len(self.history):
            if self.history[index] != value:
                raise Broken(f"node {node.id} has {value} where {self.history[index]} was committed, at {index}")
        elif index == len(self.history):
            self.history.append(value)
        else:
            raise Broken(f"node {node.id} skips from {len(self.history)} to {index}")

    def check(self) -> None:
        for node in self.nodes.values():
            if not node.is_up:
                continue
            driver = node.driver
            if driver.high_watermark < node.high_watermark:
                raise Broken(f"node {node.id}: the high watermark goes back to {driver.high_watermark}")
            node.high_watermark = driver.high_watermark
            if driver.is_leader and self.leaders.setdefault(driver.raft_epoch, node.id) != node.id:
                raise Broken(
                    f"epoch {driver.raft_epoch} has the leaders {node.id} and {self.leaders[driver.raft_epoch]}"
                )

    # A life

    def run(self, *, faulty_ms: int = FAULTY_MS) -> None:
        for node in self.nodes.values():
            node.start()
        self.scheduler.after(EVERY_MS, self._append)
        self.scheduler.after(500, self._disturb)
        self.scheduler.run_until(faulty_ms, on_event=self.check)
        self.heal()
        self.scheduler.run_until(self.scheduler.now_ms + HEALED_MS - 2000, on_event=self.check)
        self.check_alive()
        self.is_quiet = True
        self.scheduler.run_until(self.scheduler.now_ms + 2000, on_event=self.check)
        self.check_equal()

    def check_alive(self) -> None:
        if self.leader() is None:
            raise Broken("nobody leads, long after the faults ended")
        seen = len(self.acknowledged)
        self.scheduler.run_until(self.scheduler.now_ms + 500, on_event=self.check)
        if len(self.acknowledged) <= seen:
            raise Broken("nothing is committed, long after the faults ended")

    def check_equal(self) -> None:
        for node in self.nodes.values():
            if node.record.values != self.history:
                raise Broken(f"node {node.id} has {len(node.record.values)} of {len(self.history)} values in the end")
        lost = set(self.acknowledged) - set(self.history)
        if lost or len(set(self.history)) != len(self.history):
            raise Broken(f"acknowledged and lost, or committed twice: {sorted(lost)}")

    def leader(self) -> Node | None:
        active = [node for node in self.nodes.values() if node.is_up and node.record.is_active]
        return max(active, key=lambda node: node.driver.raft_epoch, default=None)

    def _append(self) -> None:
        if self.is_quiet:
            return
        self.scheduler.after(EVERY_MS, self._append)
        self.append_everywhere()

    def append_everywhere(self) -> None:
        """At every node that thinks it leads, so that one that is cut off appends too."""
        for node in self.nodes.values():
            if node.is_up and node.record.is_active:
                self._count += 1
                value = f"v{self._count}"
                try:
                    journaled = node.driver.append([ConfigRecord(name=value)])
                except (ApiError, DiskError, LogOffline):
                    continue
                node.record.pending.append((journaled.next_offset, value))
                node.record.on_high_watermark()

    # Faults

    def heal(self) -> None:
        self.loss, self.slow_ms = 0.0, 5.0
        self.cut.clear()
        for node in self.nodes.values():
            node.sync_ms = 2.0
            if not node.is_up:
                node.start()

    def _disturb(self) -> None:
        if self.scheduler.now_ms >= FAULTY_MS - 500:
            return
        self.scheduler.after(self.random.uniform(50, 1500), self._disturb)
        network = [self._partition, self._partition, self._cut_one_way, self._lose]
        machines = [self._crash, self._blackout, self._slow, self._slow, self._pause]
        requests = [self._snapshot, self._snapshot, self._resign, self._resign, self._change_voters]
        fault = self.random.choice([*network, *machines, *requests])
        fault(self.random.choice(list(self.nodes.values())))

    def _crash(self, node: Node) -> None:
        if not node.is_up:
            return
        node.crash(power=self.random.random() < 0.7)
        self.scheduler.after(self.random.uniform(10, 3000), node.restart)

    def _blackout(self, node: Node) -> None:
        """All lose power at once, with what is not synced."""
        for each in self.nodes.values():
            if each.is_up:
                each.crash(power=True)
                self.scheduler.after(self.random.uniform(10, 500), each.restart)

    def _partition(self, node: Node) -> None:
        inside = {node.id, *(each for each in self.nodes if self.random.random() < 0.3)}
        for one in self.nodes:
            for other in self.nodes:
                if (one in inside) != (other in inside):
                    self._cut_for((one, other))

    def _cut_one_way(self, node: Node) -> None:
        self._cut_for((node.id, self.random.choice(list(self.nodes))))

    def _cut_for(self, link: tuple[int, int]) -> None:
        self.cut.add(link)
        self.scheduler.after(self.random.uniform(100, 4000), lambda: self.cut.discard(link))

    def _lose(self, node: Node) -> None:
        self.loss = self.random.choice([0.0, 0.0, 0.05, 0.3])

    def _slow(self, node: Node) -> None:
        for each in [node] if self.random.random() < 0.5 else list(self.nodes.values()):
            each.sync_ms = self.random.choice([2.0, 50.0, 400.0])
        self.slow_ms = self.random.choice([5.0, 5.0, 80.0])

    def _pause(self, node: Node) -> None:
        if node.is_up:
            node.clock.pause(self.random.uniform(100, 3000))

    def _snapshot(self, node: Node) -> None:
        if node.is_up:
            node.snapshot()

    def _resign(self, node: Node) -> None:
        """A clean stop, and a start later."""
        if not node.is_up:
            return

        def stopped() -> None:
            if node.is_up:
                node.crash(power=False)
                self.scheduler.after(self.random.uniform(10, 2000), node.restart)

        node.driver.stop(stopped)

    def _change_voters(self, node: Node) -> None:
        leader = self.leader()
        if leader is None or len(self.nodes) == len(leader.driver.machine.voters) == 3:
            return
        voters = leader.driver.machine.voters
        request: Message
        if voters.contains(node.voter):
            if len(voters) < 3:
                return
            request = RemoveRaftVoterRequest(CLUSTER, node.id, node.voter.directory_id)
        else:
            listeners = [Listener("CONTROLLER", *address_of(node.id))]
            request = AddRaftVoterRequest(CLUSTER, 1000, node.id, node.voter.directory_id, listeners)
        leader.driver.receive(request, self._changed)

    def _changed(self, response: Any) -> None:
        if not response.error_code:
            self.changes_done += 1


def run_seed(seed: int) -> World:
    """Three voters, three and two observers that come and go as voters, or five voters."""
    voters, observers = [(3, 0), (3, 2), (5, 0)][seed % 3]
    world = World(seed, voters=voters, observers=observers)
    try:
        world.run()
    except Broken as problem:
        raise Broken(f"seed {seed}, at {world.scheduler.now_ms:.0f} ms: {problem}") from problem
    return world


def run_unsynced(seed: int, slow: tuple[int, ...], down: int) -> World:
    """A script: some disks are slow while a record is appended, all lose power, and one node stays down for a while.

    ``slow`` and ``down`` count from the leader, which is 0.
    """
    world = World(seed)
    run = world.scheduler.run_until
    leader = _elect(world)
    order = [leader, *(node for node in world.nodes.values() if node is not leader)]
    for position in slow:
        order[position].sync_ms = 1e9
    if down == 1:
        world.cut |= {(leader.id, order[2].id), (order[2].id, leader.id)}
    world.append_everywhere()
    run(world.scheduler.now_ms + 60, on_event=world.check)
    for node in order:
        node.crash(power=True)
    world.cut.clear()
    for position, node in enumerate(order):
        node.sync_ms = 2.0
        if position != down:
            node.start()
    run(world.scheduler.now_ms + 6000, on_event=world.check)
    world.append_everywhere()
    run(world.scheduler.now_ms + 500, on_event=world.check)
    world.heal()
    run(world.scheduler.now_ms + 5000, on_event=world.check)
    world.check_equal()
    return world


def run_removed_leader(seed: int) -> World:
    """A script: a leader with records on their way is removed from the voters."""
    world = World(seed)
    leader = _elect(world)
    for _ in range(5):
        world.append_everywhere()
    request = RemoveRaftVoterRequest(CLUSTER, leader.id, leader.voter.directory_id)
    leader.driver.receive(request, lambda _: None)
    for _ in range(5):
        world.append_everywhere()
    world.scheduler.run_until(world.scheduler.now_ms + 6000, on_event=world.check)
    if leader.record.is_active:
        raise Broken("a leader that is no voter leads on")
    world.check_equal()
    return world


def _elect(world: World) -> Node:
    for node in world.nodes.values():
        node.start()
    while (leader := world.leader()) is None:
        world.scheduler.run_until(world.scheduler.now_ms + 50, on_event=world.check)
    world.scheduler.run_until(world.scheduler.now_ms + 300, on_event=world.check)
    return leader
