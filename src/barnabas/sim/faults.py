"""Faults of a simulated cluster, drawn at random: processes, machines, links, and what operators ask for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.sim.cluster import CONTROLLER_PORT, SimNode
from barnabas.sim.disk import Fault
from barnabas.sim.network import Links, Weather
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.api.elect_leaders import ElectLeadersRequest
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.schema import Message

CLOCK_JUMPS_MS = [-3_600_000, 3_600_000, -86_400_000, 172_800_000, 50]
CUT_MS = (50.0, 6000.0)
PAUSE_MS = (20.0, 4000.0)
SLOW_MS = (300.0, 4000.0)
SLOW_FACTORS = [5.0, 20.0, 100.0]
BREAK_CHANCES = [0.0, 0.01, 0.1]
DELAYS_MS = [0.0, 20.0, 300.0]
BETWEEN_VOTERS_MS = (300.0, 4000.0)
BETWEEN_RESTARTS_MS = 200.0


class Target(Protocol):
    """The world that the faults happen to."""

    nodes: dict[int, SimNode]
    links: Links
    is_durable: bool
    is_at_peace: bool
    """No more faults happen."""

    @property
    def movable_topics(self) -> list[tuple[str, int]]: ...

    def trace(self, text: str) -> None: ...

    def after(self, delay_ms: float, callback: Callable[[], None]) -> None: ...

    def ask_controller(self, request: Message) -> None: ...


def add_voter(node: SimNode) -> AddRaftVoterRequest:
    listener = Listener("CONTROLLER", node.host, CONTROLLER_PORT)
    return AddRaftVoterRequest(node.cluster_id, 2000, node.node_id, node.directory_id, [listener])


class Faults:
    def __init__(self, world: Target, rng: random.Random, client_hosts: list[str]) -> None:
        self._world = world
        self._random = rng
        self._client_hosts = client_hosts
        self._cuts = 0

    def strike(self) -> None:
        """One fault."""
        rng = self._random
        node = self._world.nodes[rng.choice(sorted(self._world.nodes))]
        several = len(self._world.nodes) > 1
        faults: list[tuple[int, Callable[[], Any]]] = [
            (4, node.kill),
            (4 if self._world.is_durable else 0, lambda: node.kill(power=True)),
            (2, node.stop),
            (3, lambda: node.pause(rng.uniform(*PAUSE_MS))),
            (3, node.break_connections),
            (1, lambda: node.jump(rng.choice(CLOCK_JUMPS_MS))),
            (3, lambda: self._fail_disk(node, Fault.ENOSPC, rng.choice(["write", "write", "create", "write_file"]))),
            (1, lambda: self._fail_disk(node, Fault.EIO, "sync")),
            (2, lambda: self._slow_down(node)),
            (3, lambda: self._worsen(node)),
            (1 if several else 0, self._restart_all),
            (2 if several else 0, lambda: self._change_voters(node)),
            (4 if several else 0, lambda: self._isolate(node)),
            (3 if several else 0, lambda: self._cut_one_way(node)),
            (1 if several else 0, self._kill_all),
            (2 if several else 0, self._reassign),
            (1 if several else 0, lambda: self._world.ask_controller(ElectLeadersRequest(topic_partitions=None))),
        ]
        rng.choices(faults, [weight for weight, _ in faults])[0][1]()

    def _fail_disk(self, node: SimNode, fault: Fault, operation: str) -> None:
        if node.is_serving:
            self._world.trace(f"the next {operation} of node {node.node_id} fails with {fault.name}")
            node.disk.fail_next_of(operation, fault)

    def _slow_down(self, node: SimNode) -> None:
        node.slow_down(self._random.choice(SLOW_FACTORS))
        self._world.after(self._random.uniform(*SLOW_MS), lambda: node.slow_down(1.0))

    # Links

    def _worsen(self, node: SimNode) -> None:
        """Frames are late and break their connections, between the node and everyone."""
        world, rng = self._world, self._random
        weather = Weather(rng.choice(BREAK_CHANCES), rng.choice(DELAYS_MS))
        world.trace(f"the links of node {node.node_id} are bad: {weather}")
        for other in [*(each.host for each in world.nodes.values() if each is not node), *self._client_hosts]:
            world.links.worsen(node.host, other, weather)
            world.links.worsen(other, node.host, weather)
        self._heal_later()

    def _isolate(self, node: SimNode) -> None:
        """From the other nodes, and sometimes from the clients too."""
        world, rng = self._world, self._random
        others = [each.host for each in world.nodes.values() if each is not node]
        if rng.random() < 0.5:
            others += self._client_hosts
        world.trace(f"node {node.node_id} is cut off from {', '.join(others)}")
        for other in others:
            world.links.cut(node.host, other)
            world.links.cut(other, node.host)
        self._heal_later()

    def _cut_one_way(self, node: SimNode) -> None:
        world, rng = self._world, self._random
        other = rng.choice([each.host for each in world.nodes.values() if each is not node])
        world.trace(f"nothing of node {node.node_id} reaches {other}")
        world.links.cut(node.host, other)
        self._heal_later()

    def _heal_later(self) -> None:
        self._cuts += 1
        number = self._cuts

        def heal() -> None:
            if number == self._cuts:
                self._world.trace("the links heal")
                self._world.links.heal()

        self._world.after(self._random.uniform(*CUT_MS), heal)

    # Several at once

    def _kill_all(self) -> None:
        for node in self._world.nodes.values():
            node.kill()

    def _restart_all(self) -> None:
        """A rolling restart: each node stops cleanly once the one before it serves again."""
        self._world.trace("a rolling restart begins")
        self._restart_next(sorted(self._world.nodes))

    def _restart_next(self, node_ids: list[int]) -> None:
        world = self._world
        if not node_ids or world.is_at_peace:
            return
        if all(node.is_serving for node in world.nodes.values()):
            world.nodes[node_ids[0]].stop()
            node_ids = node_ids[1:]
        world.after(BETWEEN_RESTARTS_MS, lambda: self._restart_next(node_ids))

    # Operators

    def _change_voters(self, node: SimNode) -> None:
        """Removes a voter, and adds it again after a while."""
        world = self._world
        world.trace(f"node {node.node_id} is to be no voter any more")
        world.ask_controller(RemoveRaftVoterRequest(node.cluster_id, node.node_id, node.directory_id))
        delay_ms = self._random.uniform(*BETWEEN_VOTERS_MS)
        world.after(delay_ms, lambda: world.ask_controller(add_voter(node)))

    def _reassign(self) -> None:
        world, rng = self._world, self._random
        topic, count = rng.choice(world.movable_topics)
        replicas = rng.sample(sorted(world.nodes), min(3, len(world.nodes)))
        number = rng.randrange(0, count)
        world.trace(f"{topic}-{number} is reassigned to {replicas}")
        partition = ReassignablePartition(partition_index=number, replicas=replicas)
        world.ask_controller(
            AlterPartitionReassignmentsRequest(
                timeout_ms=5000, topics=[ReassignableTopic(name=topic, partitions=[partition])]
            )
        )
