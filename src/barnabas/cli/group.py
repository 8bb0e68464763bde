"""``barnabas group``: list, describe, reset-offsets, delete."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, TypeAlias

import click

from barnabas.app.program import program
from barnabas.cli.options import server_options, time_option
from barnabas.cli.output import age_text, print_described, print_json, print_table, time_text
from barnabas.cli.suggestions import CommandGroup, did_you_mean, naming_topics
from barnabas.client.wire import BrokerError, Client, admin, groups
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.client.wire.decoding import decode
from barnabas.client.wire.groups import GroupInfo
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

PEEK = FetchLimits(max_wait_ms=100, partition_max_bytes=64 << 10)
MOST_PEEKS = 20
"""Rounds of fetching in a row that find none of the first unread messages; beyond, their age is not told."""

Offsets: TypeAlias = dict[TopicPartition, int]


@click.group(cls=CommandGroup)
def group() -> None:
    """List, describe and delete consumer groups, and move where they read.

    Examples:
      barnabas group list
      barnabas group describe billing
      barnabas group reset-offsets billing --to-earliest
      barnabas group reset-offsets billing --to-time -1h --execute
      barnabas group delete billing --yes
    """


@group.command("list")
@click.option("--state", "states", multiple=True, help="Only groups in this state: stable, empty, ... May be repeated.")
@server_options
def list_groups(states: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List groups.

    Examples:
      barnabas group list
      barnabas group list --state stable --json
    """
    wanted = {state.lower() for state in states}
    with Client(bootstrap) as client:
        found = [each for each in groups.list_groups(client) if not wanted or each.group_state.lower() in wanted]
    rows = [
        {"name": each.group_id, "state": each.group_state, "type": each.group_type, "protocol": each.protocol_type}
        for each in found
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(["name", "state", "type", "protocol"], [list(row.values()) for row in rows])
    else:
        click.echo(f"There are no groups. Start one with: {program()} consume TOPIC --group NAME", err=True)


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@server_options
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show members, what each reads, lag, and the last rebalances with their causes.

    Examples:
      barnabas group describe billing
      barnabas group describe billing audit --json

    Lag is counted in messages, and in time: how long ago the first message was written that the group has not read.
    """
    with Client(bootstrap) as client:
        shown = [_described(client, existing(client, name)) for name in dict.fromkeys(names)]
    print_described(shown, as_json, _print_group)


@group.command("reset-offsets")
@click.argument("name")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:N,N]", help="Only these; all it committed without.")
@click.option("--to-earliest", is_flag=True, help="To the first message there is.")
@click.option("--to-latest", is_flag=True, help="To the end: what is there now is skipped.")
@click.option("--to-time", metavar="TIME", callback=time_option, help="To milliseconds, ISO 8601, or -1h ago.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift", type=int, help="By so many messages, forward or back.")
@click.option("--execute", is_flag=True, help="Do it, rather than show what would be done.")
@server_options
def reset_offsets(name: str, topics: tuple[str, ...], bootstrap: str, as_json: bool, **wanted: Any) -> None:
    """Move where a group reads on.

    Examples:
      barnabas group reset-offsets billing --to-earliest
      barnabas group reset-offsets billing --topic orders --to-latest --execute
      barnabas group reset-offsets billing --topic orders:0,3 --to-offset 42 --execute
      barnabas group reset-offsets billing --to-time 2026-01-31T12:00:00+00:00
      barnabas group reset-offsets billing --shift -100

    Nothing is changed without --execute. The group must have no members.
    """
    execute = wanted.pop("execute")
    chosen = {key: value for key, value in wanted.items() if value is not None and value is not False}
    if len(chosen) != 1:
        raise click.UsageError("Give one of --to-earliest, --to-latest, --to-time, --to-offset, --shift.")
    ((how, value),) = chosen.items()
    with Client(bootstrap) as client:
        _refuse_members(client, name, may_be_new=bool(topics))
        committed = {place: held.offset for place, held in groups.committed_offsets(client, name).items()}
        places = _places(client, topics) if topics else sorted(committed)
        if not places:
            raise click.ClickException(f"Group {name} has committed nothing: name what to reset with --topic.")
        targets = _targets(client, places, committed, how, value)
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


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@server_options
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete groups that have no members, with their offsets.

    Examples:
      barnabas group delete billing
      barnabas group delete billing audit --yes
    """
    if not yes:
        click.confirm(f"Delete {', '.join(names)} with all committed offsets?", abort=True, err=True)
    problems: dict[str, str] = {}
    with Client(bootstrap) as client:
        for name in dict.fromkeys(names):
            try:
                groups.delete_group(client, name)
            except BrokerError as error:
                problems[name] = _why_not(client, name, error)
    deleted = [name for name in dict.fromkeys(names) if name not in problems]
    if as_json:
        print_json([{"name": name, "deleted": name not in problems} for name in dict.fromkeys(names)])
    elif deleted:
        click.echo(f"Deleted {', '.join(deleted)}.")
    if problems:
        raise click.ClickException(" ".join(problems.values()))


def existing(client: Client, name: str) -> GroupInfo:
    """Raises ClickException where there is none; older brokers call such a group dead."""
    try:
        info = groups.describe_group(client, name)
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise no_such_group(client, name) from error
    if info.state == "Dead":
        raise no_such_group(client, name)
    return info


def no_such_group(client: Client, name: str) -> click.ClickException:
    known = [each.group_id for each in groups.list_groups(client)]
    hint = did_you_mean(name, known) or f" List them with: {program()} group list"
    return click.ClickException(f"There is no group {name}.{hint}")


def _described(client: Client, info: GroupInfo) -> dict[str, Any]:
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "partitions": [str(place) for place in member.assigned],
        }
        for member in info.members
    ]
    rebalances = [
        {
            "timestamp": each.timestamp_ms,
            "generation": each.generation if each.generation >= 0 else None,
            "members": each.member_count,
            "cause": each.cause,
        }
        for each in info.rebalances
    ]
    return {
        "name": info.group_id,
        "state": info.state,
        "protocol_type": info.protocol_type,
        "assignor": info.protocol,
        "coordinator": info.coordinator,
        "members": members,
        "offsets": _lags(client, info),
        "rebalances": rebalances,
    }


def _lags(client: Client, info: GroupInfo) -> list[dict[str, Any]]:
    committed = groups.committed_offsets(client, info.group_id)
    owners = {place: member.member_id for member in info.members for place in member.assigned}
    places = sorted({*committed, *owners})
    known = set(client.load(sorted({place.topic for place in places})) if places else ())
    living = [
        place for place in places if place.topic in known and place.partition in client.topic(place.topic).partitions
    ]
    first: Offsets = {}
    last: Offsets = {}
    with suppress(BrokerError):
        last = _listed(client, living, admin.LATEST)
        first = _listed(client, living, admin.EARLIEST)
    unread = {
        place: max(committed[place].offset, first[place])
        for place in living
        if place in committed and place in last and place in first and committed[place].offset < last[place]
    }
    written = _written_at(client, {place: offset for place, offset in unread.items() if offset < last[place]})
    now_ms = int(time.time() * 1000)
    ages_ms = {place: max(now_ms - at_ms, 0) for place, at_ms in written.items()}
    return [
        _lag(place, committed[place].offset if place in committed else None, last.get(place), ages_ms.get(place))
        | {"member_id": owners.get(place)}
        for place in places
    ]


def _lag(place: TopicPartition, offset: int | None, end: int | None, age_ms: int | None) -> dict[str, Any]:
    lag = max(end - offset, 0) if offset is not None and end is not None else None
    age_ms = 0 if lag == 0 else age_ms
    return {
        "topic": place.topic,
        "partition": place.partition,
        "committed_offset": offset,
        "latest_offset": end,
        "lag": lag,
        "lag_seconds": None if age_ms is None else age_ms / 1000,
    }


def _listed(client: Client, places: list[TopicPartition], timestamp: int) -> Offsets:
    found = admin.list_offsets(client, dict.fromkeys(places, timestamp))
    return {place: listed.offset for place, listed in found.items()}


def _written_at(client: Client, offsets: Offsets) -> Offsets:
    """When the first message at or after each offset was written."""
    found: Offsets = {}
    wanted = dict(offsets)
    in_vain = 0
    while wanted and in_vain < MOST_PEEKS:
        in_vain += 1
        for fetched in fetch(client, wanted, PEEK):
            decoded = decode(fetched, wanted[fetched.partition])
            if decoded.records:
                found[fetched.partition] = decoded.records[0].timestamp
                del wanted[fetched.partition]
                in_vain = 0
            else:
                wanted[fetched.partition] = decoded.next_offset
    return found


def _print_group(item: dict[str, Any]) -> None:
    protocol = "/".join(filter(None, [item["protocol_type"], item["assignor"]])) or "-"
    click.echo(f"Group {item['name']}  state {item['state']}  protocol {protocol}  coordinator {item['coordinator']}")
    if item["members"]:
        columns = ["member", "instance", "client", "host", "partitions"]
        rows = [[*list(member.values())[:4], " ".join(member["partitions"]) or None] for member in item["members"]]
        print_table(columns, rows)
    else:
        click.echo("It has no members.")
    if item["offsets"]:
        click.echo()
        columns = ["topic", "partition", "committed", "latest", "lag", "lag time", "member"]
        rows = [[*list(row.values())[:5], age_text(row["lag_seconds"]), row["member_id"]] for row in item["offsets"]]
        print_table(columns, rows)
    if item["rebalances"]:
        click.echo()
        rows = [
            [time_text(each["timestamp"]), each["generation"], each["members"], each["cause"]]
            for each in item["rebalances"]
        ]
        print_table(["rebalance", "generation", "members", "cause"], rows)


def _why_not(client: Client, name: str, error: BrokerError) -> str:
    if error.code is ErrorCode.NON_EMPTY_GROUP:
        return f"Group {name} has members: stop them first."
    if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return no_such_group(client, name).message
    return f"Group {name}: {error.code.name}."


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
    first, last = _listed_or_fail(client, places, admin.EARLIEST), _listed_or_fail(client, places, admin.LATEST)
    if how == "to_earliest":
        targets = first
    elif how == "to_latest":
        targets = last
    elif how == "to_time":
        found = _listed_or_fail(client, places, value)
        targets = {place: last[place] if found[place] < 0 else found[place] for place in places}
    elif how == "to_offset":
        targets = dict.fromkeys(places, value)
    else:
        lacking = [place for place in places if place not in committed]
        if lacking:
            raise click.ClickException(f"Nothing is committed for {lacking[0]}: there is nothing to shift.")
        targets = {place: committed[place] + value for place in places}
    return {place: min(max(targets[place], first[place]), last[place]) for place in places}


def _listed_or_fail(client: Client, places: list[TopicPartition], timestamp: int) -> Offsets:
    try:
        return _listed(client, places, timestamp)
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise click.ClickException(f"{error.subject} is gone: name what to reset with --topic.") from error
