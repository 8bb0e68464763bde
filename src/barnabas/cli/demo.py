"""``barnabas cluster demo``: three brokers under load, the leader of a partition is killed and started again.

The load is a stock idempotent producer with acks=all and a consumer group. At the end the whole topic is read and
compared with what was acknowledged.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
from msgspec import Struct

from barnabas.app.local_cluster import LocalCluster
from barnabas.cli.cluster_status import ClusterStatus, StatusReader
from barnabas.cli.demo_load import Findings, GroupReader, SteadyProducer, check_log
from barnabas.cli.demo_view import LiveView, PlainView, View
from barnabas.client.wire import Client, admin
from barnabas.model.errors import StartError
from barnabas.net.local_ports import free_ports

HOST = "127.0.0.1"
TOPIC = "demo"
BROKERS = 3
PARTITIONS = 3
STEADY_S = 7.0
REFRESH_S = 0.25
PATIENCE_S = 60.0


class Times(Struct):
    """Seconds; None for what did not happen in time."""

    serving: float | None = None
    in_sync: float | None = None


class Demo:
    def __init__(self, local: LocalCluster, view: View, rate: int) -> None:
        self._local = local
        self._view = view
        self._reader = StatusReader(local)
        self._status: ClusterStatus | None = None
        self._rate = rate
        self.load: SteadyProducer | None = None
        self.group: GroupReader | None = None
        self.victim = -1
        self.led: list[int] = []
        """Partitions that the victim led."""
        self.times = Times()

    def play(self) -> Findings:
        view, servers = self._view, self._local.bootstrap_servers
        view.step(f"Starting {BROKERS} brokers.")
        self._local.start_all()
        with Client(servers) as client:
            admin.create_topic(client, TOPIC, partitions=PARTITIONS, replication_factor=BROKERS)
        load = self.load = SteadyProducer(servers, TOPIC, PARTITIONS, self._rate)
        group = self.group = GroupReader(servers, TOPIC)
        load.start()
        group.start()
        view.step(f"Sending {self._rate} messages a second with acks=all; a consumer group reads them.")
        self._watch(lambda: load.acknowledged > 0 and group.count > 0, PATIENCE_S)
        self._watch(lambda: False, STEADY_S)
        self._kill_leader(load)
        self._bring_back()
        view.step("Waiting for the last acknowledgements, then reading everything from the beginning.")
        load.stop()
        self._watch(lambda: group.count >= load.acknowledged, PATIENCE_S)
        return check_log(servers, TOPIC, load.tallies)

    def _kill_leader(self, load: SteadyProducer) -> None:
        with Client(self._local.bootstrap_servers) as client:
            leaders = {part.partition: part.leader for part in client.topic(TOPIC).partitions.values()}
        self.victim = leaders[0]
        self.led = [number for number, leader in leaders.items() if leader == self.victim]
        named = " and ".join(map(str, self.led))
        self._view.step(f"kill -9 of node {self.victim}, which leads partition {named}.")
        self._local.kill(self.victim)
        counts = {number: len(load.tallies[number].values) for number in self.led}
        if self._watch(lambda: all(len(load.tallies[n].values) > counts[n] for n in self.led), PATIENCE_S):
            self._view.step(f"Another replica leads: acknowledgements again after {self.gap_s:.1f} s.")
        else:
            self._view.step(f"No acknowledgement within {PATIENCE_S:.0f} s.")
        self._watch(lambda: False, STEADY_S)

    def _bring_back(self) -> None:
        self._view.step(f"Starting node {self.victim} again.")
        began_s = time.monotonic()
        self._local.start(self.victim)
        if self._watch(lambda: self._state_of_victim() == "serving", PATIENCE_S):
            self.times.serving = time.monotonic() - began_s
        if self._watch(lambda: self._status is not None and self._status.under_replicated == 0, PATIENCE_S):
            self.times.in_sync = time.monotonic() - began_s
            self._view.step(f"Node {self.victim} is in sync again after {self.times.in_sync:.1f} s.")
        self._watch(lambda: False, STEADY_S)

    @property
    def gap_s(self) -> float:
        """The longest time without an acknowledgement, of any partition.

        Those with other leaders wait too: acks=all counts the dead node as in sync until it is fenced.
        """
        return max((tally.gap_s for tally in self.load.tallies.values()), default=0.0) if self.load else 0.0

    def _state_of_victim(self) -> str:
        nodes = self._status.nodes if self._status else []
        return next((node.state for node in nodes if node.node_id == self.victim), "")

    def _watch(self, is_over: Callable[[], bool], timeout_s: float) -> bool:
        """Shows the state until a condition holds; False where the time is up first."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._status = self._reader.read()
            self._view.show(self._status, self.load, self.group.count if self.group else 0)
            if is_over():
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(REFRESH_S)

    def close(self) -> None:
        if self.group is not None:
            self.group.stop()
        if self.load is not None:
            self.load.abandon()
        self._reader.close()


def run(rate: int) -> int:
    """The exit code: 1 where anything was lost, duplicated or not acknowledged."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
    found = free_ports(HOST, 2 * BROKERS)
    ports = list(zip(found[:BROKERS], found[BROKERS:], strict=True))
    local = LocalCluster.create(folder, brokers=BROKERS, settings={}, host=HOST, ports=ports)
    view: View = LiveView() if sys.stdout.isatty() else PlainView()
    demo = Demo(local, view, rate)
    try:
        with view:
            findings = demo.play()
    except StartError as problem:
        raise click.ClickException(str(problem)) from problem
    finally:
        demo.close()
        local.stop_all()
        shutil.rmtree(folder, ignore_errors=True)
    return _summarise(demo, findings)


def _summarise(demo: Demo, findings: Findings) -> int:
    load, times = demo.load, demo.times
    assert load is not None
    is_good = findings.is_good and not load.failures and times.in_sync is not None
    led = " and ".join(map(str, demo.led))
    serving = "not" if times.serving is None else f"{times.serving:.1f} s"
    in_sync = "not in time" if times.in_sync is None else f"{times.in_sync:.1f} s"
    counts = f"{findings.lost} lost, {findings.duplicated} duplicated, {findings.out_of_order} out of order"
    lines = [
        "",
        f"sent      {load.sent:,} messages, {load.acknowledged:,} acknowledged, {len(load.failures)} failed",
        f"read      {findings.read:,} from the log: {counts}",
        f"killed    node {demo.victim}, the leader of partition {led}, with kill -9",
        f"gap       {demo.gap_s:.1f} s without an acknowledgement",
        f"restart   serving after {serving}, in sync after {in_sync}",
        "Nothing that was acknowledged is lost." if is_good else "FAILED: see above.",
    ]
    for line in lines:
        click.echo(line)
    for failure in load.failures[:3]:
        click.echo(f"          {failure}", err=True)
    return 0 if is_good else 1
