"""Lists partitions that are offline, refuse writes, or lack replicas, for ``barnabas partition problems``."""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.cli import quorum_leader
from barnabas.cli.output import counted, print_json, print_table
from barnabas.client.wire import Client, PartitionInfo, admin
from barnabas.client.wire.admin import ResourceType

OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED = "offline", "under min ISR", "under-replicated"
ORDER = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
MIN_ISR = "min.insync.replicas"
COLUMNS = ("partition", "state", "leader", "replicas", "in sync", "missing", MIN_ISR)


def run(bootstrap: str, as_json: bool) -> None:
    quorum_problem = _quorum_problem(bootstrap)
    with Client(bootstrap) as client:
        partitions = [
            (name, part) for name, topic in sorted(client.load(None).items()) for part in topic.partitions.values()
        ]
        minimums = _minimums(client, sorted({name for name, part in partitions if _is_short(part)}))
    rows = [row for name, part in partitions if (row := _row(name, part, minimums.get(name, 1)))]
    rows.sort(key=lambda row: ORDER.index(row["state"]))
    if as_json:
        print_json({"quorum": quorum_problem, "checked": len(partitions), "partitions": rows})
    else:
        _print(quorum_problem, len(partitions), rows)
    sys.exit(1 if rows or quorum_problem else 0)


def state_of(part: PartitionInfo, minimum: int) -> str | None:
    """None where all is well. Writes need no more in-sync replicas than there are replicas."""
    if part.leader < 0:
        return OFFLINE
    if len(part.in_sync_replicas) < min(minimum, len(part.replicas)):
        return UNDER_MIN_ISR
    return UNDER_REPLICATED if _is_short(part) else None


def _is_short(part: PartitionInfo) -> bool:
    return part.leader < 0 or not set(part.replicas) <= set(part.in_sync_replicas)


def _quorum_problem(bootstrap: str) -> str | None:
    try:
        quorum_leader.find(bootstrap)
    except quorum_leader.NoLeader as problem:
        return f"{problem}. What follows is the last known state."
    return None


def _minimums(client: Client, topics: list[str]) -> dict[str, int]:
    if not topics:
        return {}
    found = admin.describe_configs(client, ResourceType.TOPIC, topics, keys=[MIN_ISR])
    return {name: int(entry.value or 1) for name, entries in found.items() for entry in entries}


def _row(topic: str, part: PartitionInfo, minimum: int) -> dict[str, Any] | None:
    state = state_of(part, minimum)
    if state is None:
        return None
    return {
        "topic": topic,
        "partition": part.partition,
        "state": state,
        "leader": part.leader if part.leader >= 0 else None,
        "replicas": list(part.replicas),
        "in_sync_replicas": list(part.in_sync_replicas),
        "missing": sorted(set(part.replicas) - set(part.in_sync_replicas)),
        "min_insync_replicas": minimum,
    }


def _print(quorum_problem: str | None, checked: int, rows: list[dict[str, Any]]) -> None:
    if quorum_problem is not None:
        click.echo(quorum_problem)
    if not rows:
        click.echo(f"{counted(checked, 'partition')}: every one has a leader and all replicas in sync.")
        return
    numbers = ", ".join(f"{sum(row['state'] == state for row in rows)} {state}" for state in ORDER)
    click.echo(f"{counted(checked, 'partition')}: {numbers}")
    print_table(COLUMNS, [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> list[object]:
    lists = [",".join(map(str, row[key])) or "-" for key in ("replicas", "in_sync_replicas", "missing")]
    return [f"{row['topic']}-{row['partition']}", row["state"], row["leader"], *lists, row["min_insync_replicas"]]
