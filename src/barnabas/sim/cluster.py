"""Simulated nodes: real ``Node`` objects over simulated ports, killed and restarted."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.core.metadata.image import Endpoint
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import StartError
from barnabas.model.ports import Address
from barnabas.node.node import Node
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.sim.disk import SimDisk
from barnabas.sim.network import Connection, Links, NodeNetwork

SYNC_MS = (0.2, 8.0)
WORK_MS = (0.5, 20.0)
RESTART_MS = (5.0, 400.0)
DATA = "/data"
BROKER_PORT, CONTROLLER_PORT = 9092, 9093


class _Throttle:
    def __call__(self, size_bytes: int) -> None: ...

    def limit(self, bytes_per_second: float) -> None: ...


class _Worker:
    """Work happens some time later, in one piece."""

    def __init__(self, node: SimNode, clock: NodeClock) -> None:
        self._node = node
        self._clock = clock
        self._is_closed = False

    def __call__(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        self._clock.run(self._node.random.uniform(*WORK_MS), lambda: self._run(work, then))

    def _run(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        if self._is_closed:
            return
        problem: Exception | None = None
        try:
            work()
        except Exception as raised:
            problem = raised
        then(problem)

    def throttle(self, bytes_per_second: float) -> _Throttle:
        return _Throttle()

    def close(self) -> None:
        self._is_closed = True


class SimNode:
    """One machine: its disk stays, processes come and go."""

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        node_id: int,
        settings: dict[str, str],
        trace: Callable[[str], None],
        links: Links,
        peers: dict[str, SimNode],
        clock_rate: float = 1.0,
    ) -> None:
        """``peers`` are all nodes of the cluster by host, this one among them."""
        self.node_id = node_id
        self.host = f"node-{node_id}"
        self.random = rng
        self.disk = SimDisk(rng.getrandbits(32))
        self.disk.on_waiting = self._sync_later
        self.node: Node | None = None
        self.is_serving = False
        self.wall_offset_ms = 0
        self.starts = 0
        self.sync_factor = 1.0
        """How many times longer than usual a sync takes."""
        self.cluster_id, self.directory_id = "", b""
        """Of a formatted disk."""
        self._clock_rate = clock_rate
        self.reports: list[str] = []
        self._scheduler = scheduler
        self._settings = settings
        self._trace = trace
        self._links = links
        self._peers = peers
        self._clock = NodeClock(scheduler, clock_rate)
        self._connections: list[Connection] = []
        self._outgoing: list[Connection] = []

    # Processes

    def start(self) -> None:
        self.starts += 1
        clock = self._clock = NodeClock(self._scheduler, self._clock_rate)
        clock.wall_offset_ms = self.wall_offset_ms
        self.disk.is_slow = False  # a start waits for the disk
        node = self.node = Node(
            settings=BrokerSettings.parse(self._settings),
            static_settings=self._settings,
            directories=[DATA],
            disk=self.disk,
            clock=clock,
            random=random.Random(self.random.getrandbits(64)),
            workers=lambda _name: _Worker(self, clock),
            network=NodeNetwork(clock, self._connect_to, f"broker-{self.node_id}"),
            report=self._report,
            on_failure=self._failed,
        )
        endpoint = Endpoint("PLAINTEXT", self.host, BROKER_PORT)
        try:
            node.open([endpoint], ("CONTROLLER", self.host, CONTROLLER_PORT))
        except StartError as problem:
            self._started(node, problem)
        node.start(lambda problem: self._started(node, problem))
        self.disk.is_slow = True

    def _started(self, node: Node, problem: StartError | None) -> None:
        if problem is not None:
            raise AssertionError(f"node {self.node_id} does not start: {problem}") from problem
        if node is self.node:
            self.is_serving = True
            self._trace(f"node {self.node_id} serves")

    def _report(self, event: str, **fields: Any) -> None:
        self.reports.append(f"{event} {fields}")
        self._trace(f"node {self.node_id} reports: {event} {fields}")

    def _failed(self, reason: str) -> None:
        """A real process ends then; whatever supervises it starts it again."""
        self._trace(f"node {self.node_id} ends by itself: {reason}")
        self._clock.run(0, lambda: self.kill(restart=True))

    def kill(self, *, restart: bool = True, power: bool = False) -> None:
        """kill -9, or a cut of power: what was not synced may be lost then."""
        if self.node is None:
            return
        self._trace(f"node {self.node_id} {'loses power' if power else 'is killed'}")
        self._end_process()
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        if restart:
            self._scheduler.after(self.random.uniform(*RESTART_MS), self._restart)

    def _end_process(self) -> None:
        self._clock.kill()
        self.node, self.is_serving = None, False
        self._close_connections()

    def _restart(self) -> None:
        if self.node is None:
            self.start()

    def stop(self) -> None:
        """A clean stop, and a start afterwards."""
        node = self.node
        if node is None or not self.is_serving:
            return
        self._trace(f"node {self.node_id} stops cleanly")
        self.is_serving = False

        def stopped(_clean: bool) -> None:
            if node is self.node:
                self._end_process()
                self.disk.kill()
                self._scheduler.after(self.random.uniform(*RESTART_MS), self._restart)

        node.stop(self._close_connections, stopped)

    def pause(self, duration_ms: float) -> None:
        self._trace(f"node {self.node_id} is paused for {duration_ms:.0f} ms")
        self._clock.pause(duration_ms)

    def jump(self, by_ms: int) -> None:
        """The wall clock is set."""
        self._trace(f"the clock of node {self.node_id} jumps by {by_ms} ms")
        self.wall_offset_ms += by_ms
        self._clock.wall_offset_ms = self.wall_offset_ms

    # The disk

    def _sync_later(self) -> None:
        self._clock.run(self.random.uniform(*SYNC_MS) * self.sync_factor, self._sync_one)

    def _sync_one(self) -> None:
        self.disk.release_one()

    def slow_down(self, factor: float) -> None:
        self._trace(f"the disk of node {self.node_id} takes {factor:.0f} times as long to sync")
        self.sync_factor = factor

    def heal(self) -> None:
        self.disk.heal()
        self.sync_factor = 1.0

    # The network

    def connect(
        self, client: str, on_frame: Callable[[bytes], None], on_end: Callable[[], None], port: int = BROKER_PORT
    ) -> Connection | None:
        """None where nobody listens."""
        node = self.node
        if node is None or (port == BROKER_PORT and not self.is_serving):
            return None
        pipeline = node.pipeline if port == BROKER_PORT else node.controller_pipeline
        if pipeline is None:
            return None
        connection = Connection(
            self._scheduler,
            self.random,
            pipeline,
            self._clock,
            links=self._links,
            client_host=client,
            server_host=self.host,
            listener="PLAINTEXT" if port == BROKER_PORT else "CONTROLLER",
            on_frame=on_frame,
            on_end=on_end,
        )
        self._connections = [each for each in self._connections if each.is_open]
        self._connections.append(connection)
        return connection

    def _connect_to(
        self, address: Address, on_frame: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> Connection | None:
        """A connection of this node to another."""
        peer = self._peers.get(address.host)
        connection = None if peer is None else peer.connect(self.host, on_frame, on_end, address.port)
        if connection is not None:
            self._outgoing = [each for each in self._outgoing if each.is_open]
            self._outgoing.append(connection)
        return connection

    def break_connections(self) -> None:
        self._trace(f"connections to node {self.node_id} break")
        self._close_connections()

    def _close_connections(self) -> None:
        connections, self._connections = [*self._connections, *self._outgoing], []
        self._outgoing = []
        for connection in connections:
            connection.close()
