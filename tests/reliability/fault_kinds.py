"""The faults: what each does to which broker, and the order in which a seed draws them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.app.link_proxy import CLIENT
from barnabas.app.local_cluster import LocalCluster
from tests.reliability.fault_hosts import BROKERS, Hosts, Link
from tests.reliability.fault_load import GROUP, PARTITIONS, TOPIC
from tests.reliability.fault_view import ClusterView

KILL, PAUSE, CUT, SPLIT, DEAF, MUTE = "killed", "paused", "cut off", "cut from brokers", "hears nothing", "is not heard"
KILL_ALL, ROLLING, POWER = "all killed", "rolling restart", "power cut"
ONE_BROKER = (KILL, PAUSE, CUT, SPLIT, DEAF, MUTE)
SHORT_S, LONG_S = (1.0, 5.0), (10.0, 13.0)
TARGETS = ("leader", "leader", "controller", "coordinator")
ROLLING_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    kind: str
    target: str
    """The role of the broker that it meets; "all" for those that meet every one."""
    partition: int
    """Whose leader is meant, where it is a leader."""
    duration_s: float

    @property
    def label(self) -> str:
        if self.target == "all":
            return self.kind
        return f"{self.kind}, {'1–5' if self.duration_s <= SHORT_S[1] else '10–13'} s"


def draw(
    chance: random.Random, *, power: bool = False, kinds: list[str] | None = None, target: str | None = None
) -> Iterator[Fault]:
    """Without end: every kind, short and long, once in random order; then again."""
    while True:
        deck = [(kind, bounds) for kind in ONE_BROKER for bounds in (SHORT_S, LONG_S)]
        deck += [(KILL_ALL, SHORT_S), (ROLLING, SHORT_S)]
        deck += [(POWER, SHORT_S)] * (3 if power else 0)
        deck = [(kind, bounds) for kind, bounds in deck if not kinds or kind in kinds]
        if not deck:
            raise ValueError(f"no such kind of fault: {kinds}")
        chance.shuffle(deck)
        for kind, bounds in deck:
            yield one(kind, chance, bounds, target)


def one(kind: str, chance: random.Random, bounds: tuple[float, float] = SHORT_S, target: str | None = None) -> Fault:
    drawn = chance.choice(TARGETS)
    return Fault(
        kind=kind,
        target="all" if kind not in ONE_BROKER else target or drawn,
        partition=chance.randrange(PARTITIONS),
        duration_s=chance.uniform(*bounds),
    )


class Injector:
    def __init__(self, cluster: LocalCluster, hosts: Hosts, view: ClusterView) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._view = view

    def victim_of(self, fault: Fault) -> int:
        if fault.target == "all":
            return 0
        if fault.target == "controller":
            return self._view.controller()
        if fault.target == "coordinator":
            return self._view.coordinator_of(GROUP)
        return self._view.leader_of(TOPIC, fault.partition)

    def carry_out(self, fault: Fault, victim: int) -> None:
        """Returns when the fault is over: processes are started and links work, but nobody has recovered yet."""
        if fault.kind == ROLLING:
            self._roll()
        elif fault.kind == KILL_ALL:
            self._kill_all(fault.duration_s)
        elif fault.kind == KILL:
            self._cluster.kill(victim)
            time.sleep(fault.duration_s)
            self._hosts.start(self._cluster, victim)
        elif fault.kind == PAUSE:
            self._cluster.pause(victim)
            time.sleep(fault.duration_s)
            self._cluster.resume(victim)
        else:
            self._hosts.cut(links_of(fault.kind, victim))
            time.sleep(fault.duration_s)
            self._hosts.heal()

    def _kill_all(self, duration_s: float) -> None:
        for node in BROKERS:
            self._cluster.signal(node, signal.SIGKILL)
        for node in BROKERS:
            self._cluster.wait_for_end(node)
        time.sleep(duration_s)
        for node in BROKERS:
            self._hosts.start(self._cluster, node)

    def _roll(self) -> None:
        """As an operator would: the next one when all replicas are in sync again."""
        for node in BROKERS:
            self._cluster.stop(node)
            self._hosts.start(self._cluster, node)
            self._view.wait_until_healthy(ROLLING_TIMEOUT_S)


def links_of(kind: str, victim: int) -> list[Link]:
    others = [node for node in BROKERS if node != victim] + ([] if kind == SPLIT else [CLIENT])
    heard = [] if kind == MUTE else [(other, victim) for other in others]
    said = [] if kind == DEAF else [(victim, other) for other in others]
    return heard + said
