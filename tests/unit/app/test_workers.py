"""The settings of workers, and the supervisor's words and waits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from barnabas.app.supervisor import MAX_BACKOFF_S, Supervisor, back_off_s, numbered
from barnabas.app.workers import check_folders, format_workers, plan_workers
from barnabas.model.errors import StartError


def plan(count: int = 3, **texts: str) -> list[dict[str, str]]:
    given = [(key.replace("_", "."), value) for key, value in texts.items()]
    workers = plan_workers(config=None, environment={}, given=given, count=count, host_name="box")
    return [dict(worker.given) for worker in workers]


def test_one_machine_alone() -> None:
    first, second, third = plan(listeners="PLAINTEXT://127.0.0.1:9092", log_dirs="/a,/b")
    assert first == {
        "node.id": "1",
        "broker.rack": "box",
        "log.dirs": "/a/worker-0,/b/worker-0",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:19092",
    }
    assert second == {
        "node.id": "2",
        "broker.rack": "box",
        "log.dirs": "/a/worker-1,/b/worker-1",
        "process.roles": "broker",
        "listeners": "PLAINTEXT://127.0.0.1:9093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19092",
    }
    assert third["listeners"] == "PLAINTEXT://127.0.0.1:9094"


def test_a_machine_of_several() -> None:
    first, second = plan(
        2,
        node_id="11",
        broker_rack="b",
        listeners="PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:19093",
        advertised_listeners="PLAINTEXT://host2:9092,CONTROLLER://host2:19093",
        controller_quorum_bootstrap_servers="host1:19093,host2:19093",
    )
    assert first["listeners"] == "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:19093"
    assert first["advertised.listeners"] == "PLAINTEXT://host2:9092,CONTROLLER://host2:19093"
    assert (second["node.id"], second["broker.rack"], second["process.roles"]) == ("12", "b", "broker")
    assert second["advertised.listeners"] == "PLAINTEXT://host2:9093"
    assert "controller.quorum.bootstrap.servers" not in second, "as in the file"


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(StartError, match=r"process\.roles is controller"):
        plan(process_roles="controller")
    with pytest.raises(StartError, match="There is no controller"):
        plan(process_roles="broker")


def test_folders_get_the_identity_of_one_cluster(tmp_path: Path) -> None:
    given = [("log.dirs", str(tmp_path))]
    workers = plan_workers(config=None, environment={}, given=given, count=2)
    format_workers(workers)
    format_workers(plan_workers(config=None, environment={}, given=given, count=3))
    lines = [
        dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        for path in sorted(tmp_path.glob("worker-*/meta.properties"))
    ]
    assert [each["node.id"] for each in lines] == ["1", "2", "3"]
    assert len({each["cluster.id"] for each in lines}) == 1
    assert check_folders([str(tmp_path)], 3) == []
    (warning,) = check_folders([str(tmp_path)], 1)
    assert "folders of 2 more workers" in warning


def test_the_folder_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(StartError, match=f"move all that is in {tmp_path} to {tmp_path}/worker-0"):
        check_folders([str(tmp_path)], 2)


def test_the_workers_of_a_cluster_are_formatted_by_hand(tmp_path: Path) -> None:
    given = [("log.dirs", str(tmp_path)), ("controller.quorum.bootstrap.servers", "other:9093")]
    workers = plan_workers(config=None, environment={}, given=given, count=2)
    with pytest.raises(StartError, match="storage format --workers"):
        format_workers(workers)


def test_lines_carry_the_worker() -> None:
    assert numbered(2, "listening") == "worker 2: listening"
    assert json.loads(numbered(2, '{"event": "x"}')) == {"worker": 2, "event": "x"}
    assert json.loads(numbered(2, "{}")) == {"worker": 2}


def test_waits_grow_up_to_a_cap() -> None:
    assert [back_off_s(count) for count in (0, 1, 2, 3)] == [0.5, 0.5, 1.0, 2.0]
    assert back_off_s(50) == MAX_BACKOFF_S


def test_a_worker_that_cannot_start_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.app.supervisor.FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    said: list[str] = []
    patient = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    failing = [sys.executable, "-c", "import sys; print('the port is taken.', file=sys.stderr); sys.exit(2)"]
    code = Supervisor([patient, failing], lambda line, _: said.append(line)).run()
    assert code == 1
    assert "Worker 1 failed 5 times in a row" in said[-1]
    assert "the last time with: the port is taken. All workers were stopped." in said[-1]
    assert said.count("worker 1: the port is taken.") == 5
