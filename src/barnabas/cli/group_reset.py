"""Moves the committed offsets of a group for ``barnabas group reset-offsets``."""

from __future__ import annotations

from typing import Any, TypeAlias

import click

from barnabas.cli.group_admin import existing
from barnabas.cli.output import print_json, print_table
from barnabas.cli.suggestions import naming_topics
from barnabas.client.wire import BrokerError, Client, admin, groups
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]


def reset_offsets(
    name: str, topics: tuple[str, ...], wanted: tuple[str, Any], execute: bool, bootstrap: str, as_json: bool
) -> None:
    with Client(bootstrap) as client:
        _refuse_members(client, name, may_be_new=bool(topics))
        committed = {place: held.offset for place, held in groups.committed_offsets(client, name).items()}
        places = _places(client, topics) if topics else sorted(committed)
        if not places:
            raise click.ClickException(f"Group {name} has committed nothing: name what to reset with --topic.")
        targets = _targets(client, places, committed, *wanted)
        if execute:
            groups.commit_offsets(client, name, targets)
    rows = [
        {"topic": place.topic, "partition": place.partition, "from": committed.get(place), "to": targets[place]}
        for place in targets
    ]
    if as_json:
        print_json({"group": name, "executed": execute, "offsets": rows})
        return
    print_table(["topic", "partition", "from", "to"], [list(row.values()) for row in rows])
    click.echo("Done." if execute else "Nothing was changed. Give --execute to do it.", err=not execute)


def _refuse_members(client: Client, name: str, *, may_be_new: bool) -> None:
    try:
        info = existing(client, name)
    except click.ClickException:
        if may_be_new:
            return
        raise
    if info.members or info.state not in ("Empty", "Dead"):
        several = "" if len(info.members) == 1 else "s"
        raise click.ClickException(f"Group {name} has {len(info.members)} member{several}: stop them first.")


def _places(client: Client, topics: tuple[str, ...]) -> list[TopicPartition]:
    places: dict[TopicPartition, None] = {}
    for text in topics:
        name, _, numbers = text.partition(":")
        with naming_topics(client, name):
            known = client.topic(name).partitions
        try:
            chosen = [int(number) for number in numbers.split(",")] if numbers else list(known)
        except ValueError:
            raise click.UsageError(f"{text!r} is not TOPIC or TOPIC:N,N.") from None
        for number in chosen:
            if number not in known:
                raise click.ClickException(f"Topic {name} has no partition {number}, only 0 to {len(known) - 1}.")
            places[TopicPartition(name, number)] = None
    return sorted(places)


def _targets(client: Client, places: list[TopicPartition], committed: Offsets, how: str, value: Any) -> Offsets:
    """Never outside of what the partition holds."""
    first, last = _listed(client, places, admin.EARLIEST), _listed(client, places, admin.LATEST)
    if how == "to_earliest":
        targets = first
    elif how == "to_latest":
        targets = last
    elif how == "to_time":
        found = _listed(client, places, value)
        targets = {place: last[place] if found[place] < 0 else found[place] for place in places}
    elif how == "to_offset":
        targets = dict.fromkeys(places, value)
    else:
        lacking = [place for place in places if place not in committed]
        if lacking:
            raise click.ClickException(f"Nothing is committed for {lacking[0]}: there is nothing to shift.")
        targets = {place: committed[place] + value for place in places}
    return {place: min(max(targets[place], first[place]), last[place]) for place in places}


def _listed(client: Client, places: list[TopicPartition], timestamp: int) -> Offsets:
    try:
        found = admin.list_offsets(client, dict.fromkeys(places, timestamp))
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise click.ClickException(f"{error.subject} is gone: name what to reset with --topic.") from error
    return {place: listed.offset for place, listed in found.items()}
