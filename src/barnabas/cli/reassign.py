"""Generates, executes, verifies and cancels moves for ``barnabas partition reassign``; elects leaders."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from barnabas.app.program import program
from barnabas.cli import moves as moving
from barnabas.cli.moves import Placement
from barnabas.cli.output import counted, print_json, print_table, size_text
from barnabas.cli.suggestions import naming_topics, no_such_topic
from barnabas.client.reassignment import files, plans
from barnabas.client.reassignment.layout import Assignment, PlanError, changes, moved_bytes
from barnabas.client.wire import Client, cluster
from barnabas.client.wire.cluster import ElectionType
from barnabas.model.ids import INTERNAL_TOPICS, TopicPartition


def generate(
    *,
    topics: Sequence[str],
    topics_file: Any,
    every: bool,
    internal: bool,
    brokers: list[int] | None,
    replication_factor: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    with Client(bootstrap) as client:
        now = moving.read_placement(client)
        names = set(topics) | set(_read(files.read_topics, topics_file) if topics_file else ())
        if every:
            names |= {place.topic for place in now.assignment if internal or place.topic not in INTERNAL_TOPICS}
        known = {place.topic for place in now.assignment}
        missing = sorted(names - known)
        if missing:
            raise no_such_topic(client, missing[0])
    _check_brokers(now, brokers)
    current = {place: replicas for place, replicas in now.assignment.items() if place.topic in names}
    try:
        plan = plans.generate(now.serving(brokers), current, replication_factor=replication_factor)
    except PlanError as problem:
        raise click.ClickException(f"{problem}.") from problem
    moves = changes(current, plan)
    if as_json:
        print_json({"current": files.reassignment_value(current), "proposed": files.reassignment_value(plan)})
        return
    click.echo(files.reassignment_text(plan))
    size = size_text(moved_bytes(current, moves, now.sizes))
    click.echo(f"{len(moves)} of {counted(len(current), 'partition')} change, {size} to copy.", err=True)


def _check_brokers(now: Placement, wanted: list[int] | None) -> None:
    states = {broker.node_id: broker.is_fenced for broker in now.brokers}
    for node_id in wanted or ():
        if states.get(node_id, True):
            why = "is fenced" if node_id in states else "is not registered"
            raise click.ClickException(f"Broker {node_id} {why}: {program()} broker list shows those that serve.")


def execute(plan: Any, additional: bool, throttle: int | None, wait: bool, bootstrap: str, as_json: bool) -> None:
    wanted = _read(files.read_reassignment, plan)
    with Client(bootstrap) as client:
        now = moving.read_placement(client)
        _check_known(client, now, wanted)
        if not additional and cluster.list_reassignments(client):
            raise click.ClickException("Other moves are under way: wait for them, cancel them, or give --additional.")
        before = {place: now.assignment[place] for place in wanted}
        if not as_json:
            click.echo("Replicas before, for the way back:", err=True)
            click.echo(files.reassignment_text(before), err=True)
        moving.begin(client, wanted, now, throttle)
        if wait:
            moving.follow(client, wanted, now, quiet=as_json)
            if throttle is not None:
                moving.clear_throttle(client, {place.topic for place in wanted})
    if as_json:
        print_json({"moves": moving.describe_moves(wanted, now), "before": files.reassignment_value(before)})
    else:
        done = "Moved" if wait else "Began to move"
        click.echo(f"{done} {counted(len(wanted), 'partition')}.")


def _check_known(client: Client, now: Placement, wanted: Assignment) -> None:
    for place in wanted:
        if place not in now.assignment:
            if all(place.topic != other.topic for other in now.assignment):
                raise no_such_topic(client, place.topic)
            raise click.ClickException(f"Topic {place.topic} has no partition {place.partition}.")


def verify(plan: Any, preserve_throttles: bool, bootstrap: str, as_json: bool) -> None:
    wanted = _read(files.read_reassignment, plan)
    with Client(bootstrap) as client:
        ongoing = cluster.list_reassignments(client)
        now = moving.read_placement(client)
        states = {place: _state(place, to, ongoing, now) for place, to in wanted.items()}
        is_over = not any(place in ongoing for place in wanted)
        if is_over and not preserve_throttles:
            moving.clear_throttle(client, {place.topic for place in wanted})
    if as_json:
        print_json([{"topic": p.topic, "partition": p.partition, "state": state} for p, state in states.items()])
    else:
        print_table(["partition", "state"], [[str(place), state] for place, state in states.items()])
    sys.exit(0 if all(state == "done" for state in states.values()) else 1)


def _state(place: TopicPartition, to: tuple[int, ...], ongoing: Any, now: Placement) -> str:
    if place in ongoing:
        waiting = sorted(set(ongoing[place].adding) - set(now.in_sync.get(place, ())))
        return f"under way: {moving.ids_text(waiting) or 'no replica'} not in sync yet"
    replicas = now.assignment.get(place)
    if replicas is None:
        return "there is no such partition"
    return "done" if replicas == to else f"not done: its replicas are {moving.ids_text(replicas)}"


def cancel(plan: Any, bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        ongoing = cluster.list_reassignments(client)
        named = ongoing if plan is None else _read(files.read_reassignment, plan)
        wanted = [place for place in named if place in ongoing]
        refused = cluster.alter_reassignments(client, dict.fromkeys(wanted)) if wanted else {}
        if wanted:
            moving.clear_throttle(client, {place.topic for place in wanted})
    cancelled = [place for place in wanted if place not in refused]
    if as_json:
        print_json({"cancelled": list(map(str, cancelled)), "refused": {str(p): str(e) for p, e in refused.items()}})
    else:
        click.echo(f"Cancelled {counted(len(cancelled), 'move')}." if wanted else "None of these partitions moves.")
        for error in refused.values():
            click.echo(f"Not cancelled: {error}.", err=True)
    sys.exit(1 if refused else 0)


def elect(kind: str, topic: str | None, number: int | None, file: Any, bootstrap: str, as_json: bool) -> None:
    places: list[TopicPartition] | None = None
    with Client(bootstrap) as client:
        if file is not None:
            places = _read(files.read_partitions, file)
        elif topic is not None:
            with naming_topics(client, topic):
                known = client.topic(topic).partitions
            if number is not None and number not in known:
                raise click.ClickException(f"Topic {topic} has no partition {number}.")
            places = [TopicPartition(topic, each) for each in known if number in (None, each)]
        failed = cluster.elect_leaders(client, ElectionType[kind.upper()], places)
    if as_json:
        print_json({"failed": {str(place): str(error) for place, error in failed.items()}})
    else:
        for error in failed.values():
            click.echo(f"{error}.", err=True)
        count = "all partitions" if places is None else counted(len(places), "partition")
        click.echo(f"Elected {kind} leaders of {count}; {len(failed)} failed.")
    sys.exit(1 if failed else 0)


def _read(reader: Any, file: Any) -> Any:
    try:
        return reader(file.read(), file.name)
    except files.FileError as problem:
        raise click.ClickException(f"{problem}.") from problem
