"""Commands of a cluster against a single broker: what they print, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import EmbeddedBroker
from tests.unit.cli.command_line import run


@pytest.fixture(autouse=True)
def broker(shared_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", shared_broker.bootstrap_servers)


@pytest.fixture
def topic(new_topic: Callable[[], str], broker: None) -> str:
    name = new_topic()
    run("topic", "create", name, "--partitions", "2")
    return name


def from_json(*arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def test_the_quorum_of_one() -> None:
    found = from_json("quorum", "status")
    assert found["leader_id"] == 1
    assert [(node["node_id"], node["role"], node["lag"]) for node in found["nodes"]] == [(1, "leader", 0)]
    assert "leader 1, epoch" in run("quorum", "status").stdout
    assert "Node 1 is a voter already." in run("quorum", "add-voter", "1", code=1).stderr
    assert "Node 7 does not follow the metadata log" in run("quorum", "add-voter", "7", code=1).stderr
    assert "Node 7 is not a voter; the voters are 1." in run("quorum", "remove-voter", "7", code=1).stderr
    assert "the last voter cannot be removed" in run("quorum", "remove-voter", "1", code=1).stderr
    assert "is not HOST:PORT" in run("quorum", "add-voter", "7", "--endpoint", "x", code=2).stderr


def test_the_only_broker(topic: str) -> None:
    (listed,) = from_json("broker", "list")
    assert (listed["broker"], listed["state"], listed["role"]) == (1, "serving", "broker, active controller")
    assert listed["leaders"] == listed["replicas"] >= 2
    (load,) = from_json("broker", "load", "--seconds", "0.1")
    assert load["usable_bytes"] > 0
    assert "IN/S" in run("broker", "load", "--seconds", "0.1").stdout
    assert "without broker 1 there are 0 brokers that serve" in run("broker", "drain", "1", code=1).stderr
    assert "There is no broker 9; there are 1." in run("broker", "drain", "9", code=1).stderr
    assert "Drain it first" in run("broker", "remove", "1", code=1).stderr


def test_a_plan_for_one_broker(topic: str, tmp_path: Path) -> None:
    plan = run("partition", "reassign", "generate", "--topic", topic)
    assert "0 of 2 partitions change" in plan.stderr
    assert [each["replicas"] for each in json.loads(plan.stdout)["partitions"]] == [[1], [1]]
    file = tmp_path / "plan.json"
    file.write_text(plan.stdout)
    assert "Moved 2 partitions." in run("partition", "reassign", "execute", str(file)).stdout
    assert {each["state"] for each in from_json("partition", "reassign", "verify", str(file))} == {"done"}
    assert "None of these partitions moves." in run("partition", "reassign", "cancel", str(file)).stdout
    refused = run("partition", "reassign", "generate", "-t", topic, "-r", "3", code=1).stderr
    assert "cannot have 3 replicas: there is 1 broker" in refused
    assert "There is no topic nope." in run("partition", "reassign", "generate", "-t", "nope", code=1).stderr
    assert (
        "Broker 5 is not registered"
        in run("partition", "reassign", "generate", "-t", topic, "--brokers", "1,5", code=1).stderr
    )
    assert (
        "is not a list of broker ids"
        in run("partition", "reassign", "generate", "-t", topic, "--brokers", "one", code=2).stderr
    )


def test_bad_plans_are_refused(topic: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 9, "replicas": [1]}]}))
    assert f"Topic {topic} has no partition 9." in run("partition", "reassign", "execute", str(file), code=1).stderr
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [8]}]}))
    assert "1 of 1 move refused" in run("partition", "reassign", "execute", str(file), code=1).stderr
    file.write_text("[]")
    assert "plan.json cannot be read" in run("partition", "reassign", "execute", str(file), code=1).stderr


def test_leaders_are_elected(topic: str, tmp_path: Path) -> None:
    assert "of 2 partitions; 0 failed" in run("partition", "elect-leaders", "--topic", topic).stdout
    assert from_json("partition", "elect-leaders", "--topic", topic, "--partition", "1") == {"failed": {}}
    assert "has no partition 5" in run("partition", "elect-leaders", "-t", topic, "-p", "5", code=1).stderr
    assert "Give one of" in run("partition", "elect-leaders", code=2).stderr
    assert (
        "for partitions that are named"
        in run("partition", "elect-leaders", "--type", "unclean", "--all", code=2).stderr
    )
    file = tmp_path / "election.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    assert "of 1 partition; 0 failed" in run("partition", "elect-leaders", "--path-to-json-file", str(file)).stdout
