"""Lists, describes and deletes groups for ``barnabas group``, and prints them."""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas.app.program import program
from barnabas.cli.output import print_json, print_table, time_text
from barnabas.cli.suggestions import did_you_mean
from barnabas.client.wire import BrokerError, Client, admin, groups
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.client.wire.decoding import decode
from barnabas.client.wire.groups import GroupInfo
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

PEEK = FetchLimits(max_wait_ms=100, partition_max_bytes=64 << 10)
MOST_PEEKS = 20
"""Rounds of fetching in a row that find none of the first unread messages; beyond, their age is not told."""


def list_groups(states: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
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


def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        shown = [_described(client, existing(client, name)) for name in dict.fromkeys(names)]
    if as_json:
        print_json(shown)
        return
    for at, item in enumerate(shown):
        if at:
            click.echo()
        _print_group(item)


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
    first = _listed(client, living, admin.EARLIEST)
    last = _listed(client, living, admin.LATEST)
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


def _listed(client: Client, places: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    try:
        found = admin.list_offsets(client, dict.fromkeys(places, timestamp))
    except BrokerError:
        return {}
    return {place: listed.offset for place, listed in found.items()}


def _written_at(client: Client, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """When the first message at or after each offset was written."""
    found: dict[TopicPartition, int] = {}
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


def age_text(seconds: float | None) -> str | None:
    """3725 is ``1h 2m``."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f}s" if 0 < seconds < 10 else f"{seconds:.0f}s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}m {int(seconds % 60)}s"
    hours = minutes // 60
    return f"{hours}h {minutes % 60}m" if hours < 48 else f"{hours // 24}d {hours % 24}h"


def delete(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
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


def _why_not(client: Client, name: str, error: BrokerError) -> str:
    if error.code is ErrorCode.NON_EMPTY_GROUP:
        return f"Group {name} has members: stop them first."
    if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return no_such_group(client, name).message
    return f"Group {name}: {error.code.name}."
