"""Tells whether a broker has recovered from its restart, so that the next one of the cluster may be restarted."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import click

from barnabas.cli.output import counted, print_json
from barnabas.client.wire import BrokerError, Client, ClientError, ConnectionSettings, PartitionInfo, cluster
from barnabas.client.wire.cluster import ClusterBroker, QuorumInfo, Reassignment
from barnabas.model.ids import TopicPartition

VOTER_LAG_MAX_MS = 5_000
"""A voter that has not caught up for longer does not count for the majority. Voters fetch twice a second or more."""
NAMED = 3
"""So many partitions are named in a reason."""


def run(node: int, timeout_s: float, bootstrap: str, as_json: bool) -> None:
    found = _ask(node, timeout_s, bootstrap)
    if as_json:
        print_json({"broker": node, "is_ready": not found, "reasons": found})
    else:
        click.echo(f"Broker {node} is ready." if not found else f"Broker {node} is not ready: {'; '.join(found)}.")
    sys.exit(1 if found else 0)


def _ask(node: int, timeout_s: float, bootstrap: str) -> list[str]:
    limits = ConnectionSettings(
        client_id="barnabas-ready", connect_timeout_s=min(timeout_s, 2.0), request_timeout_s=timeout_s
    )
    try:
        with Client(bootstrap, limits, timeout_s=timeout_s) as client:
            brokers = cluster.list_brokers(client)
            topics = client.load(None)
            try:
                quorum, moves = cluster.describe_quorum(client), cluster.list_reassignments(client)
            except (ClientError, BrokerError) as problem:
                return [f"no active controller answers: {problem}"]
    except (ClientError, BrokerError) as problem:
        return [str(problem)]
    partitions = {
        TopicPartition(topic.name, part.partition): part
        for topic in topics.values()
        for part in topic.partitions.values()
    }
    return reasons(node, brokers, quorum, partitions, moves)


def reasons(
    node: int,
    brokers: Iterable[ClusterBroker],
    quorum: QuorumInfo,
    partitions: Mapping[TopicPartition, PartitionInfo],
    moves: Mapping[TopicPartition, Reassignment],
) -> list[str]:
    """Why the broker is not ready; empty where it is."""
    own = next((broker for broker in brokers if broker.node_id == node), None)
    if own is None:
        return ["it is not registered"]
    found = ["it is fenced"] if own.is_fenced else []
    missing = _not_in_sync(node, partitions, moves)
    if missing:
        names = ", ".join(map(str, missing[:NAMED])) + (", …" if len(missing) > NAMED else "")
        found.append(f"{counted(len(missing), 'partition')} of it without a full in-sync set ({names})")
    return found + _quorum_reasons(node, quorum)


def _not_in_sync(
    node: int, partitions: Mapping[TopicPartition, PartitionInfo], moves: Mapping[TopicPartition, Reassignment]
) -> list[TopicPartition]:
    """Replicas that a move adds are not expected in sync before it ends."""
    found = []
    for place, part in sorted(partitions.items()):
        adding = moves[place].adding if place in moves else ()
        expected = set(part.replicas) - set(adding)
        if node in part.replicas and not expected <= set(part.in_sync_replicas):
            found.append(place)
    return found


def _quorum_reasons(node: int, quorum: QuorumInfo) -> list[str]:
    """A voter may be restarted next only if the others are a majority without it."""
    now_ms = max((voter.last_caught_up_ms for voter in quorum.voters), default=-1)
    behind = sorted(voter.node_id for voter in quorum.voters if now_ms - voter.last_caught_up_ms > VOTER_LAG_MAX_MS)
    is_voter = any(voter.node_id == node for voter in quorum.voters)
    if not is_voter or not behind:
        return []
    return [f"the metadata quorum waits for {counted(len(behind), 'voter')} ({', '.join(map(str, behind))})"]
