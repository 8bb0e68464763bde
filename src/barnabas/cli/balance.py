"""Proposes and carries out the moves of ``barnabas partition balance``."""

from __future__ import annotations

import click

from barnabas.app.program import program
from barnabas.cli import moves as moving
from barnabas.cli.moves import Placement
from barnabas.cli.output import counted, print_json, print_table, size_text
from barnabas.client.reassignment import balance, files
from barnabas.client.reassignment.layout import Assignment, moved_bytes
from barnabas.client.wire import Client, cluster


def run(
    *,
    execute: bool,
    max_moves: int,
    tolerance: int,
    throttle: int | None,
    wait: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    with Client(bootstrap) as client:
        if cluster.list_reassignments(client):
            raise click.ClickException("Moves are under way: balance when they are done.")
        now = moving.read_placement(client)
        share = tolerance / 100
        plan = balance.balance(now.serving(), now.assignment, now.sizes, max_moves=max_moves, tolerance=share)
        if as_json:
            print_json(files.reassignment_value(plan))
        elif plan:
            _show(plan, now)
        if not plan:
            click.echo("The brokers are balanced: nothing to move.", err=True)
        elif execute:
            _execute(client, plan, now, throttle, wait, as_json)
        elif not as_json:
            click.echo(f"Nothing was moved. To carry it out: {program()} partition balance --execute")


def _show(plan: Assignment, now: Placement) -> None:
    rows = [
        [str(place), moving.ids_text(now.assignment[place]), moving.ids_text(to), size_text(now.sizes.get(place, 0))]
        for place, to in plan.items()
    ]
    print_table(["partition", "replicas", "planned", "size"], rows)
    after = {**now.assignment, **plan}
    click.echo()
    brokers = []
    for broker in now.serving():
        before_totals = moving.totals(now.assignment, now.sizes, broker.node_id)
        after_totals = moving.totals(after, now.sizes, broker.node_id)
        pairs = zip(before_totals[:2], after_totals[:2], strict=True)
        held = f"{size_text(before_totals[2])} -> {size_text(after_totals[2])}"
        brokers.append([broker.node_id, broker.rack, *(f"{a} -> {b}" for a, b in pairs), held])
    print_table(["broker", "rack", "replicas", "preferred leaders", "bytes"], brokers)
    copied = size_text(moved_bytes(now.assignment, plan, now.sizes))
    click.echo(f"{counted(len(plan), 'partition')} to change, {copied} to copy.")


def _execute(client: Client, plan: Assignment, now: Placement, throttle: int | None, wait: bool, as_json: bool) -> None:
    moving.begin(client, plan, now, throttle)
    if not wait:
        click.echo(f"Began to move {counted(len(plan), 'partition')}; elect leaders when that is done.", err=True)
        return
    moving.follow(client, plan, now, quiet=as_json)
    if throttle is not None:
        moving.clear_throttle(client, {place.topic for place in plan})
    failed = moving.elect_preferred(client, plan)
    for error in failed.values():
        click.echo(f"No preferred leader: {error}.", err=True)
    click.echo(f"Moved {counted(len(plan), 'partition')}.", err=True)
