"""A single broker grows to a cluster of three under load, by the commands of docs/CLUSTER.md."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.demo_load import GroupReader, SteadyProducer, check_log
from barnabas.net.local_ports import accepts, free_ports
from tests.reliability.process import PATIENCE_S
from tests.reliability.raw import wait_until
from tests.unit.cli.command_line import run

HOST = "127.0.0.1"
TOPIC = "orders"
PARTITIONS = 3


class Nodes:
    """Processes, each with a settings file and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(HOST, 6)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def port(self, node_id: int) -> int:
        return self.ports[node_id - 1]

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{self.port(node_id)}" for node_id in (1, 2, 3))

    def settings(self, node_id: int) -> Path:
        path = self.folder / f"node{node_id}.properties"
        controllers = ",".join(f"{HOST}:{port}" for port in self.ports[3:])
        path.write_text(
            f"node.id={node_id}\n"
            f"listeners=PLAINTEXT://{HOST}:{self.port(node_id)},CONTROLLER://{HOST}:{self.ports[2 + node_id]}\n"
            f"controller.quorum.bootstrap.servers={controllers}\n"
            f"log.dirs={self.folder}/data{node_id}\n"
            "default.replication.factor=3\n"
            "offsets.topic.replication.factor=3\n"
        )
        return path

    def start(self, node_id: int, *arguments: str) -> None:
        command = [sys.executable, "-m", "barnabas", "serve", *arguments]
        with (self.folder / f"node{node_id}.log").open("ab") as output:
            self._processes[node_id] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        process = self._processes[node_id]
        wait_until(lambda: process.poll() is not None or accepts(HOST, self.port(node_id)), f"node {node_id} serves")
        assert process.poll() is None, (self.folder / f"node{node_id}.log").read_text()

    def stop(self, node_id: int) -> None:
        self._processes[node_id].terminate()
        assert self._processes[node_id].wait(PATIENCE_S) == 0

    def kill(self, node_id: int) -> None:
        self._processes[node_id].kill()
        self._processes[node_id].wait(PATIENCE_S)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(300)
def test_a_single_broker_becomes_a_cluster_under_load(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", nodes.servers)
    nodes.start(1, "--listen", f"{HOST}:{nodes.port(1)}", "--data", str(tmp_path / "data1"))
    run("topic", "create", TOPIC, "-p", str(PARTITIONS))
    load = SteadyProducer(nodes.servers, TOPIC, PARTITIONS, 200)
    group = GroupReader(nodes.servers, TOPIC)
    load.start()
    group.start()
    try:
        wait_until(lambda: group.count > 100, "the group reads")
        grow(nodes, tmp_path)
        lost_leader(nodes, load, group)
        load.stop()
        assert load.failures == []
        wait_until(lambda: group.count == load.acknowledged, "the group has read all")
    finally:
        group.stop()
        load.abandon()
    findings = check_log(nodes.servers, TOPIC, load.tallies)
    assert findings.is_good, findings
    assert findings.read == load.sent


def grow(nodes: Nodes, folder: Path) -> None:
    # The controller of a single broker has no listener: it gets one with its settings file.
    nodes.stop(1)
    nodes.start(1, "--config", str(nodes.settings(1)))
    (shown,) = json.loads(run("storage", "info", "-c", str(nodes.settings(1)), "--json").stdout)["directories"]
    cluster_id = shown["properties"]["cluster.id"]
    for node_id in (2, 3):
        settings = str(nodes.settings(node_id))
        run("storage", "format", "-t", cluster_id, "-c", settings, "--no-initial-controllers")
        nodes.start(node_id, "--config", settings)
        run("quorum", "add-voter", str(node_id))
    voters = json.loads(run("quorum", "status", "--json").stdout)["nodes"]
    assert [(each["node_id"], each["role"] != "observer") for each in voters] == [(1, True), (2, True), (3, True)]
    plan = folder / "plan.json"
    plan.write_text(run("partition", "reassign", "generate", "--all", "--internal", "--replication-factor", "3").stdout)
    run("partition", "reassign", "execute", str(plan))
    run("partition", "reassign", "verify", str(plan))
    brokers = json.loads(run("broker", "list", "--json").stdout)
    assert [each["out_of_sync"] for each in brokers] == [0, 0, 0]
    assert {each["replicas"] for each in brokers} == {PARTITIONS + 50}, "the offsets topic too"


def lost_leader(nodes: Nodes, load: SteadyProducer, group: GroupReader) -> None:
    """The broker that all began with dies: the others have everything, the group's offsets too."""
    nodes.kill(1)
    acknowledged = load.acknowledged
    wait_until(lambda: load.acknowledged > acknowledged + 500, "the producer goes on")
    wait_until(lambda: group.count > acknowledged, "the group goes on")
