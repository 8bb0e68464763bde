"""What an operator sees while brokers of a cluster are away: `broker ready`, `partition problems`, `quorum status`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas.cli import main
from barnabas.testing import EmbeddedCluster
from tests.reliability.raw import wait_until
from tests.unit.cli.command_line import run


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_broker_away_and_then_the_quorum() -> None:
    with EmbeddedCluster(brokers=3, settings={"min.insync.replicas": 2}) as cluster:
        servers = cluster.bootstrap_servers
        run("topic", "create", "orders", "-p", "1", "-r", "3", "-b", servers)
        wait_until(lambda: all(ready(node, servers)["is_ready"] for node in (1, 2, 3)), "all are ready")
        assert problems(servers, code=0)["partitions"] == []
        cluster.kill(3)
        wait_until(lambda: states(servers) == ["under-replicated"], "the partition is under-replicated")
        wait_until(lambda: "orders-0" in str(ready(1, servers)["reasons"]), "broker 1 is not ready")
        cluster.kill(2)
        wait_until(lambda: has_no_leader(servers), "the last controller has resigned")
        error = run("quorum", "status", "-b", servers, code=1).stderr
        assert "The metadata quorum has no leader" in error
        assert "no answer from 2 (" in error
        assert "no leader" in problems(servers, code=1)["quorum"]
        assert "last known state" in run("broker", "list", "-b", servers).stderr
        cluster.restart(2)
        cluster.restart(3)
        wait_until(lambda: all(ready(node, servers)["is_ready"] for node in (1, 2, 3)), "all are ready again")


def has_no_leader(servers: str) -> bool:
    return CliRunner().invoke(main, ["quorum", "status", "-b", servers]).exit_code == 1


def problems(servers: str, *, code: int) -> Any:
    return json.loads(run("partition", "problems", "-b", servers, "--json", code=code).stdout)


def states(servers: str) -> list[str]:
    return [each["state"] for each in ask("partition", "problems", "-b", servers)["partitions"]]


def ready(node: int, servers: str) -> Any:
    return ask("broker", "ready", str(node), "-b", servers, "--timeout", "5")


def ask(*arguments: str) -> Any:
    """The answer, whichever it is: the state may change meanwhile."""
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)
