"""Lists, drains and removes brokers for ``barnabas broker``."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import click

from barnabas.app.program import program
from barnabas.cli import moves as moving
from barnabas.cli import quorum_leader
from barnabas.cli.moves import Placement
from barnabas.cli.output import counted, print_json, print_table, size_text
from barnabas.client.reassignment import plans
from barnabas.client.reassignment.layout import Assignment, PlanError, moved_bytes
from barnabas.client.wire import BrokerError, Client, ClientError, cluster
from barnabas.client.wire.admin import describe_log_dirs
from barnabas.client.wire.cluster import QuorumInfo
from barnabas.client.wire.metrics import describe_metrics

PRODUCE, FETCH = 0, 1
DRAIN_ROUNDS = 5
"""Topics that are created while a broker is drained may be placed on it."""


def list_brokers(bootstrap: str, as_json: bool) -> None:
    quorum = _quorum_or_warning(bootstrap)
    with Client(bootstrap) as client:
        brokers = cluster.list_brokers(client)
        topics = client.load(None)
    parts = [part for topic in topics.values() for part in topic.partitions.values()]
    rows = [
        {
            "broker": broker.node_id,
            "address": str(broker.address),
            "rack": broker.rack,
            "state": "fenced" if broker.is_fenced else "serving",
            "role": _role(quorum, broker.node_id),
            "leaders": sum(part.leader == broker.node_id for part in parts),
            "replicas": sum(broker.node_id in part.replicas for part in parts),
            "out_of_sync": sum(
                broker.node_id in part.replicas and broker.node_id not in part.in_sync_replicas for part in parts
            ),
        }
        for broker in brokers
    ]
    if as_json:
        print_json(rows)
    else:
        columns = ["broker", "address", "rack", "state", "role", "leaders", "replicas", "out of sync"]
        print_table(columns, [list(row.values()) for row in rows])


def _quorum_or_warning(bootstrap: str) -> QuorumInfo | None:
    try:
        return quorum_leader.find(bootstrap)
    except quorum_leader.NoLeader as problem:
        click.echo(f"WARNING: {problem}. This is the last known state.", err=True)
        return None


def _quorum(client: Client) -> QuorumInfo | None:
    """None where the cluster does not tell."""
    with contextlib.suppress(ClientError, BrokerError):
        return cluster.describe_quorum(client)
    return None


def _role(quorum: QuorumInfo | None, node_id: int) -> str:
    if quorum is None or all(voter.node_id != node_id for voter in quorum.voters):
        return "broker"
    return "broker, active controller" if quorum.leader_id == node_id else "broker, voter"


def load(seconds: float, bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        now = moving.read_placement(client)
        usable = _usable(client)
        serving = [broker.node_id for broker in now.brokers if not broker.is_fenced]
        before = _traffic(client, serving)
        if before:
            time.sleep(seconds)
        after = _traffic(client, list(before))
    rows = [_load_row(now, node_id, usable, before, after, seconds) for node_id in serving]
    if as_json:
        print_json(rows)
        return
    columns = ["broker", "leaders", "replicas", "held", "free on disk", "in/s", "out/s"]
    numbers = [list(row.values()) for row in rows]
    print_table(columns, [[*row[:3], *("-" if n is None else size_text(n) for n in row[3:])] for row in numbers])


def _usable(client: Client) -> dict[int, int]:
    """The free space of each broker's fullest disk."""
    found: dict[int, int] = {}
    for folder in describe_log_dirs(client, skip_unavailable=True):
        if folder.usable_bytes >= 0:
            found[folder.node_id] = min(folder.usable_bytes, found.get(folder.node_id, folder.usable_bytes))
    return found


def _traffic(client: Client, nodes: list[int]) -> dict[int, tuple[int, int]]:
    """Bytes of Produce in and of Fetch out; only Barnabas brokers tell."""
    found = {}
    for node_id in nodes:
        with contextlib.suppress(ClientError, BrokerError):
            apis = {api.api_key: api for api in describe_metrics(client, [PRODUCE, FETCH], node_id=node_id)}
            found[node_id] = apis[PRODUCE].bytes_in, apis[FETCH].bytes_out
    return found


def _load_row(
    now: Placement,
    node_id: int,
    usable: dict[int, int],
    before: dict[int, tuple[int, int]],
    after: dict[int, tuple[int, int]],
    seconds: float,
) -> dict[str, Any]:
    rates: list[int | None] = [None, None]
    if node_id in before and node_id in after:
        rates = [round((b - a) / seconds) for a, b in zip(before[node_id], after[node_id], strict=True)]
    return {
        "broker": node_id,
        "leaders": sum(leader == node_id for leader in now.leaders.values()),
        "replicas": sum(node_id in replicas for replicas in now.assignment.values()),
        "held_bytes": now.held.get(node_id),
        "usable_bytes": usable.get(node_id),
        "bytes_in_per_second": rates[0],
        "bytes_out_per_second": rates[1],
    }


def drain(node: int, throttle: int | None, wait: bool, bootstrap: str, as_json: bool) -> None:
    moved: dict[Any, Any] = {}
    with Client(bootstrap) as client:
        for _ in range(DRAIN_ROUNDS):
            now = moving.read_placement(client)
            _check_registered(now, node)
            plan = _plan_drain(node, now)
            if not plan:
                break
            moved.update(plan)
            _announce(node, plan, now, as_json)
            moving.begin(client, plan, now, throttle)
            if not wait:
                break
            moving.follow(client, plan, now, quiet=as_json)
            if throttle is not None:
                moving.clear_throttle(client, {place.topic for place in plan})
        quorum = _quorum(client)
    is_voter = quorum is not None and any(voter.node_id == node for voter in quorum.voters)
    if as_json:
        print_json({"broker": node, "partitions_moved": len(moved), "is_drained": wait, "is_voter": is_voter})
    elif not wait and moved:
        click.echo(f"Began to move {counted(len(moved), 'partition')} off broker {node}.")
    else:
        click.echo(f"Broker {node} holds no replicas. {_next_step(node, is_voter)}")


def _plan_drain(node: int, now: Placement) -> Assignment:
    try:
        return plans.drain(node, now.serving(), now.assignment, sizes=now.sizes)
    except PlanError as problem:
        raise click.ClickException(f"Broker {node} cannot be drained: {problem}.") from problem


def _announce(node: int, plan: Assignment, now: Placement, as_json: bool) -> None:
    if not as_json:
        size = size_text(moved_bytes(now.assignment, plan, now.sizes))
        click.echo(f"Moving {counted(len(plan), 'partition')} ({size}) off broker {node}.", err=True)


def _next_step(node: int, is_voter: bool) -> str:
    removal = f"stop it, then: {program()} broker remove {node}"
    if is_voter:
        return f"It is a voter still: {program()} quorum remove-voter {node}, {removal}"
    return f"To take it away, {removal}"


def _check_registered(now: Placement, node: int) -> None:
    if all(broker.node_id != node for broker in now.brokers):
        known = ", ".join(str(broker.node_id) for broker in now.brokers)
        raise click.ClickException(f"There is no broker {node}; there are {known}.")


def remove(node: int, bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        brokers = {broker.node_id: broker for broker in cluster.list_brokers(client)}
        if node not in brokers:
            raise click.ClickException(f"There is no broker {node}; there are {', '.join(map(str, brokers))}.")
        topics = client.load(None)
        held = sum(node in part.replicas for topic in topics.values() for part in topic.partitions.values())
        if held:
            raise click.ClickException(
                f"Broker {node} has replicas of {counted(held, 'partition')}. "
                f"Drain it first: {program()} broker drain {node}"
            )
        quorum = _quorum(client)
        if quorum is not None and any(voter.node_id == node for voter in quorum.voters):
            raise click.ClickException(
                f"Node {node} is a voter of the quorum. First: {program()} quorum remove-voter {node}"
            )
        if not brokers[node].is_fenced:
            raise click.ClickException(f"Broker {node} runs: stop it before it is removed.")
        cluster.unregister_broker(client, node)
    if as_json:
        print_json({"broker": node, "removed": True})
    else:
        click.echo(f"Removed broker {node}.")
