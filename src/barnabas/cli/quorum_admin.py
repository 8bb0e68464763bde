"""Shows the quorum and changes its voters for ``barnabas quorum``."""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas.app.program import program
from barnabas.cli import quorum_leader
from barnabas.cli.output import print_json, print_table
from barnabas.client.wire import Client, cluster
from barnabas.client.wire.cluster import Endpoint, QuorumInfo, QuorumReplica
from barnabas.model.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_text

COLUMNS = ("node", "role", "directory id", "endpoint", "log end offset", "lag", "caught up (s ago)")


def status(bootstrap: str, as_json: bool) -> None:
    found = _found(bootstrap)
    rows = [_described(found, each, "voter") for each in found.voters]
    rows += [_described(found, each, "observer") for each in found.observers]
    if as_json:
        shown = {"leader_id": found.leader_id, "leader_epoch": found.leader_epoch}
        print_json({**shown, "high_watermark": found.high_watermark, "nodes": rows})
        return
    click.echo(f"leader {found.leader_id}, epoch {found.leader_epoch}, high watermark {found.high_watermark}")
    print_table(COLUMNS, [list(row.values()) for row in rows])


def _found(bootstrap: str) -> QuorumInfo:
    try:
        found = quorum_leader.find(bootstrap)
    except quorum_leader.NoLeader as problem:
        raise click.ClickException(f"{problem}. Start the voters that are down.") from problem
    if found is None:
        raise click.ClickException("The brokers do not tell of a quorum: they are too old.")
    return found


def _described(quorum: QuorumInfo, replica: QuorumReplica, role: str) -> dict[str, Any]:
    leader_end = max((each.log_end_offset for each in quorum.voters), default=0)
    endpoints = quorum.endpoints.get(replica.node_id, [])
    has_figures = replica.log_end_offset >= 0
    ago_s = round(max(0.0, time.time() - replica.last_caught_up_ms / 1000), 1)
    return {
        "node_id": replica.node_id,
        "role": "leader" if replica.node_id == quorum.leader_id else role,
        "directory_id": uuid_text(replica.directory_id),
        "endpoint": f"{endpoints[0][1]}:{endpoints[0][2]}" if endpoints else None,
        "log_end_offset": replica.log_end_offset if has_figures else None,
        "lag": max(0, leader_end - replica.log_end_offset) if has_figures else None,
        "seconds_since_caught_up": ago_s if replica.last_caught_up_ms >= 0 else None,
    }


def add_voter(node: int, directory_id: str | None, endpoint: Endpoint | None, bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        quorum = cluster.describe_quorum(client)
        if any(voter.node_id == node for voter in quorum.voters):
            raise click.ClickException(f"Node {node} is a voter already.")
        endpoints = [endpoint] if endpoint is not None else quorum.endpoints.get(node, [])
        directory = _uuid(directory_id) if directory_id is not None else _observed(quorum, node)
        if not endpoints:
            raise click.ClickException(
                f"Node {node} has not registered as a controller: its process.roles must contain controller, and its "
                "listeners the one of controller.listener.names. Or give --endpoint."
            )
        cluster.add_voter(client, node, directory, endpoints)
        after = cluster.describe_quorum(client)
    _say(f"Node {node} is a voter now", after, as_json)


def remove_voter(node: int, directory_id: str | None, bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        quorum = cluster.describe_quorum(client)
        known = [voter for voter in quorum.voters if voter.node_id == node]
        if not known:
            voters = ", ".join(str(voter.node_id) for voter in quorum.voters)
            raise click.ClickException(f"Node {node} is not a voter; the voters are {voters}.")
        directory = _uuid(directory_id) if directory_id is not None else known[0].directory_id
        cluster.remove_voter(client, node, directory)
        after = cluster.describe_quorum(client)
    _say(f"Node {node} is no voter any more", after, as_json)


def _observed(quorum: QuorumInfo, node: int) -> Uuid:
    """The directory id of a node that follows the metadata log; the latest, where it has lost a folder before."""
    found = [each for each in quorum.observers if each.node_id == node and each.directory_id != ZERO_UUID]
    if not found:
        raise click.ClickException(
            f"Node {node} does not follow the metadata log: start it first. {program()} quorum status shows all."
        )
    return max(found, key=lambda each: each.last_fetch_ms).directory_id


def _uuid(text: str) -> Uuid:
    try:
        return Uuid(uuid_from_text(text))
    except ValueError as problem:
        raise click.ClickException(f"--directory-id {text} is {problem}.") from problem


def _say(text: str, quorum: QuorumInfo, as_json: bool) -> None:
    voters = [voter.node_id for voter in quorum.voters]
    if as_json:
        print_json({"voters": voters, "leader_id": quorum.leader_id})
    else:
        click.echo(f"{text}; the voters are {', '.join(map(str, voters))}.")
