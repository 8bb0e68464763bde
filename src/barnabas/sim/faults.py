"""Faults of a simulated cluster, drawn at random: processes, machines, links, and what operators ask for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.sim.cluster import SimNode
from barnabas.sim.disk import Fault
from barnabas.sim.network import Links
from barnabas.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.api.elect_leaders import ElectLeadersRequest
from barnabas.wire.schema import Message

CLOCK_JUMPS_MS = [-3_600_000, 3_600_000, -86_400_000, 172_800_000, 50]
CUT_MS = (50.0, 6000.0)
PAUSE_MS = (20.0, 4000.0)


class Target(Protocol):
    """The world that the faults happen to."""

    nodes: dict[int, SimNode]
    links: Links
    is_durable: bool
    topics: list[tuple[str, int]]

    def trace(self, text: str) -> None: ...

    def after(self, delay_ms: float, callback: Callable[[], None]) -> None: ...

    def ask_controller(self, request: Message) -> None: ...


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

    # Links

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

    # Operators

    def _reassign(self) -> None:
        world, rng = self._world, self._random
        topic, count = rng.choice(world.topics)
        replicas = rng.sample(sorted(world.nodes), min(3, len(world.nodes)))
        number = rng.randrange(0, count)
        world.trace(f"{topic}-{number} is reassigned to {replicas}")
        partition = ReassignablePartition(partition_index=number, replicas=replicas)
        world.ask_controller(
            AlterPartitionReassignmentsRequest(
                timeout_ms=5000, topics=[ReassignableTopic(name=topic, partitions=[partition])]
            )
        )
