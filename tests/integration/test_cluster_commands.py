"""The commands of a cluster against real broker processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.app.local_cluster import LocalCluster
from barnabas.cli.demo_load import SteadyProducer, check_log
from barnabas.net.local_ports import free_ports, is_free
from barnabas.testing import EmbeddedCluster
from tests.reliability.process import PATIENCE_S
from tests.reliability.raw import wait_until
from tests.unit.cli.command_line import COMMAND, run

HOST = "127.0.0.1"


def from_json(*arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


# barnabas cluster


@pytest.fixture
def up(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """``barnabas cluster up`` on a folder of its own, on free ports."""
    folder = tmp_path / "cluster"
    found = free_ports(HOST, 6)
    ports = list(zip(found[:3], found[3:], strict=True))
    LocalCluster.create(folder, brokers=3, settings={}, host=HOST, ports=ports)
    process = start_up(folder)
    yield folder, process
    process.kill()
    process.wait()
    for node_id in (1, 2, 3):
        LocalCluster.open(folder).kill(node_id)


def start_up(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "barnabas", "cluster", "up", "--data", str(folder)]
    with (folder.parent / "up.log").open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def states(folder: Path) -> list[str]:
    return [node["state"] for node in from_json("cluster", "status", "--data", str(folder))["nodes"]]


@pytest.mark.timeout(300)
def test_a_cluster_is_run_from_two_terminals(up: tuple[Path, subprocess.Popen[bytes]]) -> None:
    folder, process = up
    data = ["--data", str(folder)]
    wait_until(lambda: states(folder) == ["serving"] * 3, "all brokers serve")
    assert "keeps the cluster in" in run("cluster", "up", *data, code=1).stderr
    run("cluster", "kill", "2", *data)
    assert states(folder)[1] == "stopped"
    assert "Node 2 of the cluster in" in run("cluster", "kill", "2", *data, code=1).stderr
    assert "has no node 9; it has 1, 2, 3" in run("cluster", "pause", "9", *data, code=1).stderr
    run("cluster", "pause", "3", *data)
    assert states(folder)[2] == "paused"
    run("cluster", "resume", "3", *data)
    subprocess.run([*COMMAND, "cluster", "restart", "2", *data], check=True, capture_output=True)  # as another terminal
    wait_until(lambda: states(folder) == ["serving"] * 3, "all brokers serve again")
    assert "Stopped 3 brokers" in run("cluster", "stop", *data).stdout
    assert process.wait(PATIENCE_S) == 0
    assert states(folder) == ["stopped"] * 3
    again = start_up(folder)
    try:
        wait_until(lambda: states(folder) == ["serving"] * 3, "the cluster starts again")
    finally:
        again.send_signal(signal.SIGINT)
    assert again.wait(PATIENCE_S) == 0
    assert states(folder) == ["stopped"] * 3


# barnabas partition, broker, quorum


def servers_of(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", cluster.bootstrap_servers)
    return cluster.bootstrap_servers


def replicas_of(topic: str) -> list[list[int]]:
    (shown,) = from_json("topic", "describe", topic)
    return [part["replicas"] for part in shown["partitions"]]


@pytest.mark.timeout(300)
def test_partitions_move_and_moves_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "plan.json"
    with EmbeddedCluster(brokers=3) as cluster:
        servers_of(cluster, monkeypatch)
        run("topic", "create", "orders", "-p", "4", "-r", "1")
        proposed = run("partition", "reassign", "generate", "-t", "orders", "--replication-factor", "2")
        assert "4 of 4 partitions change" in proposed.stderr
        plan.write_text(proposed.stdout)
        assert {each["state"][:8] for each in from_json("partition", "reassign", "verify", str(plan), code=1)} == {
            "not done"
        }
        run("partition", "reassign", "execute", str(plan), "--throttle", "100000000")
        assert {len(replicas) for replicas in replicas_of("orders")} == {2}
        assert {each["state"] for each in from_json("partition", "reassign", "verify", str(plan))} == {"done"}
        (shown,) = from_json("topic", "describe", "orders")
        assert not [each for each in shown["settings"] if "throttled" in each["name"]], "the throttle is removed"

        before = list(map(sorted, replicas_of("orders")))
        cluster.stop_broker(3)
        wanted = [{"topic": "orders", "partition": n, "replicas": [3, 1, 2]} for n in range(4)]
        plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
        run("partition", "reassign", "execute", str(plan), "--no-wait")
        found = from_json("partition", "reassign", "verify", str(plan), code=1)
        assert "under way" in found[0]["state"]
        assert "Other moves are under way" in run("partition", "reassign", "execute", str(plan), code=1).stderr
        run("partition", "reassign", "cancel", "--all")
        assert list(map(sorted, replicas_of("orders"))) == before
        assert "cannot be drained" in run("broker", "drain", "1", code=1).stderr


@pytest.mark.timeout(300)
def test_a_broker_is_replaced_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster(brokers=4, settings={"num.partitions": 4}) as cluster:
        servers = servers_of(cluster, monkeypatch)
        run("topic", "create", "orders", "-p", "4", "-r", "3")
        load = SteadyProducer(servers, "orders", 4, 200)
        load.start()
        try:
            run("broker", "drain", "2")
            assert "is a voter of the quorum" in run("broker", "remove", "2", code=1).stderr
            run("quorum", "remove-voter", "2")
            assert "Broker 2 runs" in run("broker", "remove", "2", code=1).stderr
            cluster.stop_broker(2)
            run("broker", "remove", "2")
            assert [each["broker"] for each in from_json("broker", "list")] == [1, 3, 4]
            assert "is not a voter; the voters are 1, 3, 4" in run("quorum", "remove-voter", "2", code=1).stderr

            cluster.restart(2)
            assert from_json("quorum", "add-voter", "2")["voters"] == [1, 2, 3, 4]
            moves = from_json("partition", "balance")["partitions"]
            assert any(2 in move["replicas"] for move in moves)
            assert all(2 not in replicas for replicas in replicas_of("orders")), "a dry run moves nothing"
            run("partition", "balance", "--execute")
            assert any(2 in replicas for replicas in replicas_of("orders"))
            run("partition", "elect-leaders", "--all")
            wait_until(lambda: {each["leaders"] for each in from_json("broker", "list")} == {1}, "leaders are even")
        finally:
            load.stop()
        assert load.failures == []
        findings = check_log(servers, "orders", load.tallies)
        assert findings.is_good, findings
        assert len(from_json("broker", "load", "--seconds", "0.1")) == 4


@pytest.mark.timeout(300)
def test_a_broker_whose_folder_is_lost_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster(brokers=3, data=tmp_path / "cluster") as cluster:
        servers_of(cluster, monkeypatch)
        run("topic", "create", "orders", "-p", "3")
        run("produce", "orders", stdin="".join(f"{number}\n" for number in range(100)))
        cluster.kill(2)
        shutil.rmtree(cluster.folder / "node-2")
        cluster_id = LocalCluster.open(cluster.folder).cluster_id
        run("storage", "format", "-t", cluster_id, "-c", str(cluster.folder / "node-2.properties"), "-N")
        cluster.restart(2)
        run("quorum", "remove-voter", "2")
        assert from_json("quorum", "add-voter", "2")["voters"] == [1, 2, 3]
        wait_until(lambda: {each["out_of_sync"] for each in from_json("broker", "list")} == {0}, "it is in sync")
        assert len(run("consume", "orders", "--offset", "earliest").stdout.split()) == 100


# barnabas serve --workers


@pytest.mark.timeout(300)
def test_workers_are_restarted_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = _row_of_ports(3)
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", f"{HOST}:{port}")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "barnabas", "serve", "--workers", "3", "--listen", f"{HOST}:{port}"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--data", str(tmp_path / "data")], stdout=output, stderr=output)
    try:
        wait_until(lambda: log.read_text().count("first message") == 3, "all workers serve")
        run("topic", "create", "orders", "-p", "3", "-r", "3")
        assert {tuple(sorted(replicas)) for replicas in replicas_of("orders")} == {(1, 2, 3)}, "one rack is enough"
        assert len({each["rack"] for each in from_json("broker", "list")}) == 1
        (victim,) = [pid for pid in _children(process.pid) if "node.id=2" in _command_line(pid)]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: "worker 1: ended after" in log.read_text(), "the end of the worker is seen")
        wait_until(lambda: log.read_text().count("first message") == 4, "the worker is started again")
        wait_until(lambda: {each["out_of_sync"] for each in from_json("broker", "list")} == {0}, "it is in sync")
    finally:
        process.terminate()
        code = process.wait(PATIENCE_S)
    assert code == 0, log.read_text()
    assert log.read_text().count("stopped cleanly") == 4, "the workers, and then the supervisor"


def _row_of_ports(count: int) -> int:
    """The first of some ports in a row that are free, and that of the controller."""
    for _ in range(100):
        first = free_ports(HOST, 1)[0]
        controller = first + 10_000 if first + 10_000 <= 65_535 else first - 10_000
        if all(_is_free(port) for port in (*range(first, first + count), controller)):
            return first
    raise AssertionError("no ports in a row are free")


def _is_free(port: int) -> bool:
    return port <= 65_535 and is_free(HOST, port)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    return list(map(int, found.stdout.split()))


def _command_line(pid: int) -> str:
    found = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return found.stdout
