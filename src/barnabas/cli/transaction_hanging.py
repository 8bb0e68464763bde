"""Finds transactions that no coordinator will end, for ``barnabas transaction find-hanging`` (KIP-664).

A producer's open transaction in a partition is hanging if it is older than any transaction may be, and the coordinator
does not have it among those that it will end. Candidates are looked at again at the end: what was ended in the meantime
did not hang.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import click

from barnabas.app.program import program
from barnabas.cli.output import age_text, counted, print_json, print_table, time_text
from barnabas.cli.suggestions import naming_topics
from barnabas.client.wire import Client, admin, groups, transactions
from barnabas.client.wire.transactions import ProducerInfo
from barnabas.model.ids import TopicPartition

PARTITIONS_AT_ONCE = 1000
"""In one request to a leader."""

Producers: TypeAlias = dict[TopicPartition, tuple[ProducerInfo, ...]]


class OpenTransaction(NamedTuple):
    partition: TopicPartition
    producer: ProducerInfo


def run(
    *,
    topics: tuple[str, ...],
    broker_id: int | None,
    timeout_minutes: float,
    with_groups: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    with Client(bootstrap) as client:
        places, leaderless = _places(client, topics, broker_id)
        names, hanging = find(client, places, int(timeout_minutes * 60_000))
        held = _held_back(client, sorted({each.partition for each in hanging}))
        lags = _lags(client, held) if with_groups and held else {}
    rows = [_row(each, names.get(each.producer.producer_id), held[each.partition]) for each in hanging]
    for row in rows:
        if with_groups:
            row["groups"] = lags.get(TopicPartition(row["topic"], row["partition"]), [])
    if as_json:
        print_json({"checked": len(places), "leaderless": [str(place) for place in leaderless], "hanging": rows})
    else:
        _print(len(places), leaderless, rows)
    sys.exit(1 if rows else 0)


def _places(
    client: Client, topics: tuple[str, ...], broker_id: int | None
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """The partitions to look at, and those that cannot be looked at: without a leader."""
    if topics:
        with naming_topics(client, *topics):
            known = [client.topic(name) for name in dict.fromkeys(topics)]
    else:
        known = sorted(client.load(None).values())
    if broker_id is not None and broker_id not in client.metadata.brokers:
        raise click.ClickException(f"There is no broker {broker_id}. List them with: {program()} broker list")
    leaders = {
        TopicPartition(topic.name, part.partition): part.leader for topic in known for part in topic.partitions.values()
    }
    places = [place for place, leader in leaders.items() if leader >= 0 and broker_id in (None, leader)]
    return places, [place for place, leader in leaders.items() if leader < 0]


def find(
    client: Client, places: Sequence[TopicPartition], timeout_ms: int
) -> tuple[dict[int, str], list[OpenTransaction]]:
    """The transactional ids of producers, where they have one, and the hanging transactions."""
    before_ms = int(time.time() * 1000) - timeout_ms
    candidates = _open_since(_producers(client, places), before_ms)
    names = dict(transactions.names_of_producers(client, {each.producer.producer_id for each in candidates}))
    infos = {producer_id: transactions.find_transaction(client, name) for producer_id, name in names.items()}
    unknown = [
        each
        for each in candidates
        if not transactions.is_known(infos.get(each.producer.producer_id), each.partition, each.producer)
    ]
    again = _open_since(_producers(client, sorted({each.partition for each in unknown})), before_ms)
    still = {(each.partition, each.producer.transaction_start_offset) for each in again}
    return names, [each for each in unknown if (each.partition, each.producer.transaction_start_offset) in still]


def _producers(client: Client, places: Sequence[TopicPartition]) -> Producers:
    found: Producers = {}
    for at in range(0, len(places), PARTITIONS_AT_ONCE):
        found |= transactions.describe_producers(client, places[at : at + PARTITIONS_AT_ONCE])
    return found


def _open_since(found: Producers, before_ms: int) -> list[OpenTransaction]:
    return sorted(
        OpenTransaction(place, each)
        for place, known in found.items()
        for each in known
        if each.transaction_start_offset >= 0 and each.last_timestamp_ms <= before_ms
    )


class HeldBack(NamedTuple):
    """What consumers with read_committed cannot see."""

    last_stable_offset: int
    high_watermark: int


def _held_back(client: Client, places: list[TopicPartition]) -> dict[TopicPartition, HeldBack]:
    wanted = dict.fromkeys(places, admin.LATEST)
    stable = admin.list_offsets(client, wanted, read_committed=True)
    written = admin.list_offsets(client, wanted)
    return {place: HeldBack(stable[place].offset, written[place].offset) for place in places}


def _lags(client: Client, held: dict[TopicPartition, HeldBack]) -> dict[TopicPartition, list[dict[str, Any]]]:
    """Groups that have committed offsets in these partitions."""
    found: dict[TopicPartition, list[dict[str, Any]]] = {place: [] for place in held}
    for group in groups.list_groups(client):
        committed = groups.committed_offsets(client, group.group_id)
        for place in held.keys() & committed.keys():
            lag = max(held[place].high_watermark - committed[place].offset, 0)
            found[place].append({"group": group.group_id, "lag": lag})
    return found


def _row(found: OpenTransaction, name: str | None, held: HeldBack) -> dict[str, Any]:
    producer = found.producer
    age_ms = int(time.time() * 1000) - producer.last_timestamp_ms
    return {
        **found.partition._asdict(),
        "transactional_id": name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        "start_offset": producer.transaction_start_offset,
        "last_write": producer.last_timestamp_ms,
        "age_seconds": max(age_ms, 0) / 1000,
        "last_stable_offset": held.last_stable_offset,
        "high_watermark": held.high_watermark,
        "held_back": held.high_watermark - held.last_stable_offset,
    }


def _print(checked: int, leaderless: list[TopicPartition], rows: list[dict[str, Any]]) -> None:
    if leaderless:
        click.echo(f"Not looked at, without a leader: {', '.join(map(str, leaderless))}", err=True)
    click.echo(f"{counted(checked, 'partition')}: {counted(len(rows), 'hanging transaction')}")
    if not rows:
        return
    columns = ["partition", "start offset", "producer id", "epoch", "transactional id", "last write", "age"]
    print_table([*columns, "held back"], [_cells(row) for row in rows])
    for row in rows:
        for each in row.get("groups", []):
            click.echo(f"Group {each['group']} is {counted(each['lag'], 'record')} behind in {_place(row)}.")
    place = f"--topic {rows[0]['topic']} --partition {rows[0]['partition']} --start-offset {rows[0]['start_offset']}"
    click.echo(f"Abort the first with: {program()} transaction abort {place}")


def _place(row: dict[str, Any]) -> str:
    return str(TopicPartition(row["topic"], row["partition"]))


def _cells(row: dict[str, Any]) -> list[object]:
    numbers = [row[key] for key in ("start_offset", "producer_id", "producer_epoch", "transactional_id")]
    held = f"{counted(row['held_back'], 'record')} from {row['last_stable_offset']}"
    return [_place(row), *numbers, time_text(row["last_write"]), age_text(row["age_seconds"]), held]
