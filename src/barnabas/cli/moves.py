"""Moves of partitions: reads where they are, begins moves, throttles them, and waits for their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import click

from barnabas.cli.output import counted, size_text
from barnabas.client.reassignment.layout import Assignment, PlanBroker, Replicas, moved_bytes
from barnabas.client.wire import BrokerError, Client, admin, cluster
from barnabas.client.wire.admin import ResourceType
from barnabas.client.wire.cluster import ClusterBroker, ElectionType
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

LOOK_S = 0.5
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class Placement(NamedTuple):
    """Where everything is now."""

    brokers: list[ClusterBroker]
    assignment: Assignment
    leaders: dict[TopicPartition, int]
    in_sync: dict[TopicPartition, tuple[int, ...]]
    sizes: dict[TopicPartition, int]
    """Bytes of the largest replica."""
    held: dict[int, int]
    """Bytes on each broker that could be asked."""

    def serving(self, only: Iterable[int] | None = None) -> list[PlanBroker]:
        wanted = None if only is None else set(only)
        return [
            PlanBroker(each.node_id, each.rack)
            for each in self.brokers
            if not each.is_fenced and (wanted is None or each.node_id in wanted)
        ]


def read_placement(client: Client) -> Placement:
    brokers = cluster.list_brokers(client)
    topics = client.load(None)
    parts = {
        TopicPartition(topic.name, part.partition): part
        for topic in topics.values()
        for part in topic.partitions.values()
    }
    sizes: dict[TopicPartition, int] = {}
    held: dict[int, int] = {}
    for folder in admin.describe_log_dirs(client, skip_unavailable=True):
        held[folder.node_id] = held.get(folder.node_id, 0) + sum(folder.sizes.values())
        for place, size in folder.sizes.items():
            sizes[place] = max(size, sizes.get(place, 0))
    return Placement(
        brokers,
        {place: part.replicas for place, part in parts.items()},
        {place: part.leader for place, part in parts.items()},
        {place: part.in_sync_replicas for place, part in parts.items()},
        sizes,
        held,
    )


def begin(client: Client, moves: Replicas, before: Placement, throttle: int | None) -> None:
    """Raises ClickException that names what was refused; moves that were taken go on."""
    if throttle is not None:
        set_throttle(client, moves, before.assignment, throttle)
    refused = cluster.alter_reassignments(client, moves)
    if len(refused) == len(moves) and throttle is not None:
        clear_throttle(client, {place.topic for place in moves})
    if refused:
        first = next(iter(refused.values()))
        others = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise click.ClickException(f"{len(refused)} of {counted(len(moves), 'move')} refused: {first}{others}.")


def follow(client: Client, moves: Replicas, before: Placement, *, quiet: bool = False) -> None:
    """Waits until none of the moves is under way, and shows how far they are."""
    total = moved_bytes(before.assignment, moves, before.sizes)
    with Progress(len(moves), total, quiet=quiet) as progress:
        while True:
            ongoing = [place for place in cluster.list_reassignments(client) if place in moves]
            progress.show(len(moves) - len(ongoing), lambda: copied_bytes(client, moves, before))
            if not ongoing:
                return
            time.sleep(LOOK_S)


def copied_bytes(client: Client, moves: Replicas, before: Placement) -> int:
    """What the new replicas have; more than they need to where it grows meanwhile."""
    added = {place: set(to) - set(before.assignment.get(place, ())) for place, to in moves.items()}
    return sum(
        min(folder.sizes[place], before.sizes.get(place, 0))
        for folder in admin.describe_log_dirs(client, skip_unavailable=True)
        for place in folder.sizes
        if folder.node_id in added.get(place, ())
    )


def elect_preferred(client: Client, places: Iterable[TopicPartition]) -> dict[TopicPartition, BrokerError]:
    """Makes the first replica of each the leader; what is led by it already needs no election."""
    wanted = list(places)
    return cluster.elect_leaders(client, ElectionType.PREFERRED, wanted) if wanted else {}


# Throttles


def set_throttle(client: Client, moves: Replicas, before: Replicas, rate: int) -> None:
    """Copies of these moves stay below ``rate`` bytes a second on each broker (KIP-73)."""
    for topic in sorted({place.topic for place in moves}):
        own = {place: set(to) for place, to in moves.items() if place.topic == topic}
        sources = {f"{place.partition}:{node}" for place in own for node in before.get(place, ())}
        targets = {f"{place.partition}:{n}" for place, to in own.items() for n in to - set(before.get(place, ()))}
        changed = {LEADER_REPLICAS: ",".join(sorted(sources)), FOLLOWER_REPLICAS: ",".join(sorted(targets))}
        admin.alter_configs(client, ResourceType.TOPIC, topic, changed=changed)
    involved = {node for place, to in moves.items() for node in (*to, *before.get(place, ()))}
    for node_id in sorted(involved & client.metadata.brokers.keys()):
        rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        admin.alter_configs(client, ResourceType.BROKER, str(node_id), changed=rates)


def clear_throttle(client: Client, topics: Iterable[str]) -> None:
    """Of these topics, and of every broker that serves."""
    for topic in sorted(set(topics)):
        try:
            admin.alter_configs(client, ResourceType.TOPIC, topic, deleted=[LEADER_REPLICAS, FOLLOWER_REPLICAS])
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
    client.load([])
    for node_id in sorted(client.metadata.brokers):
        admin.alter_configs(client, ResourceType.BROKER, str(node_id), deleted=[LEADER_RATE, FOLLOWER_RATE])


# Progress


class Progress:
    """A bar on a terminal, a line for each change elsewhere; both on standard error."""

    def __init__(self, moves: int, total_bytes: int, *, quiet: bool) -> None:
        self._moves = moves
        self._total_bytes = total_bytes
        self._quiet = quiet
        self._last = -1
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where a person looks
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
            from rich.progress import Progress as Bar  # noqa: PLC0415

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task("", total=max(1, self._total_bytes) + self._moves)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, copied: Callable[[], int]) -> None:
        if self._quiet:
            return
        text = f"{done} of {counted(self._moves, 'partition')} moved"
        if self._bar is not None:
            have = self._total_bytes if done == self._moves else min(copied(), self._total_bytes)
            shown = f"{text}, {size_text(have)} of {size_text(self._total_bytes)}"
            self._bar.update(self._task, completed=have + done, description=shown)
        elif done != self._last:
            self._last = done
            click.echo(f"{text}.", err=True)


def describe_moves(moves: Replicas, before: Placement) -> list[dict[str, Any]]:
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "from": list(before.assignment.get(place, ())),
            "to": list(to),
            "size_bytes": before.sizes.get(place, 0),
        }
        for place, to in sorted(moves.items())
    ]


def ids_text(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))


def totals(assignment: Replicas, sizes: Mapping[TopicPartition, int], node_id: int) -> tuple[int, int, int]:
    """(replicas, leaders, bytes) of a broker under an assignment."""
    held = [place for place, replicas in assignment.items() if node_id in replicas]
    led = sum(bool(replicas) and replicas[0] == node_id for replicas in assignment.values())
    return len(held), led, sum(sizes.get(place, 0) for place in held)
