"""Reads partitions from offset to offset for ``barnabas consume``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import click

from barnabas.cli.message_format import Format, style_of
from barnabas.cli.suggestions import naming_topics
from barnabas.client.wire import Client, admin
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.client.wire.decoding import decode
from barnabas.model.ids import TopicPartition
from barnabas.wire.batch import CorruptBatch, InvalidRecord, UnsupportedCodec, UnsupportedMagic
from barnabas.wire.compression import DecompressionError
from barnabas.wire.records import Record

FOLLOW_WAIT_MS = 1000
DRAIN_WAIT_MS = 500

Offsets: TypeAlias = dict[TopicPartition, int]

_UNREADABLE = (CorruptBatch, InvalidRecord, UnsupportedCodec, UnsupportedMagic, DecompressionError)


class Plan(NamedTuple):
    """Where to begin and where to stop; nowhere when following."""

    starts: Offsets
    ends: Offsets | None
    limit: int | None
    read_committed: bool


def consume(topic: str, style: str, bootstrap: str, options: dict[str, Any]) -> None:
    show = style_of(style)
    out = sys.stdout.buffer
    try:
        with Client(bootstrap) as client, naming_topics(client, topic):
            _print_all(_messages(client, _plan(client, topic, options)), show, out, options["follow"])
    except KeyboardInterrupt:
        out.flush()
    except _UNREADABLE as error:
        out.flush()
        raise click.ClickException(f"What was fetched cannot be read: {error}.") from error


def _plan(client: Client, topic: str, options: dict[str, Any]) -> Plan:
    known = client.topic(topic).partitions
    chosen = sorted(set(options["partitions"])) or list(known)
    for number in chosen:
        if number not in known:
            raise click.ClickException(f"Topic {topic} has no partition {number}, only 0 to {len(known) - 1}.")
    partitions = [TopicPartition(topic, number) for number in chosen]
    committed = options["read_committed"]
    first = _listed(client, partitions, admin.EARLIEST, committed)
    last = _listed(client, partitions, admin.LATEST, committed)
    starts = _starts(client, first, last, options)
    return Plan(starts, None if options["follow"] else last, options["max_messages"], committed)


def _listed(client: Client, partitions: list[TopicPartition], timestamp: int, committed: bool) -> Offsets:
    listed = admin.list_offsets(client, dict.fromkeys(partitions, timestamp), read_committed=committed)
    return {partition: found.offset for partition, found in listed.items()}


def _starts(client: Client, first: Offsets, last: Offsets, options: dict[str, Any]) -> Offsets:
    if options["from_time"] is not None:
        found = _listed(client, list(first), options["from_time"], options["read_committed"])
        return {partition: last[partition] if offset < 0 else offset for partition, offset in found.items()}
    wanted = options["offset"]
    if wanted == "earliest":
        return first
    if wanted == "latest":
        return last
    if wanted.startswith("-"):
        return {partition: max(first[partition], last[partition] + int(wanted)) for partition in first}
    return {partition: _within(int(wanted), first[partition], last[partition], partition) for partition in first}


def _within(offset: int, first: int, last: int, partition: TopicPartition) -> int:
    if not first <= offset <= last:
        raise click.ClickException(f"{partition} has offsets {first} to {last}, not {offset}.")
    return offset


def _messages(client: Client, plan: Plan) -> Iterator[list[tuple[TopicPartition, Record]]]:
    """What each round of fetching brought; an empty list where a follower waited in vain."""
    positions = dict(plan.starts)
    left = plan.limit
    wait_ms = FOLLOW_WAIT_MS if plan.ends is None else DRAIN_WAIT_MS
    limits = FetchLimits(max_wait_ms=wait_ms, read_committed=plan.read_committed)
    while left is None or left > 0:
        if plan.ends is not None:
            positions = {item: offset for item, offset in positions.items() if offset < plan.ends[item]}
        if not positions:
            return
        found: list[tuple[TopicPartition, Record]] = []
        for fetched in fetch(client, positions, limits):
            item = fetched.partition
            decoded = decode(fetched, positions[item], read_committed=plan.read_committed)
            positions[item] = decoded.next_offset
            end = None if plan.ends is None else plan.ends[item]
            found += [(item, record) for record in decoded.records if end is None or record.offset < end]
        if left is not None:
            found = found[:left]
            left -= len(found)
        yield found
        positions = _rotated(positions)


def _rotated(positions: Offsets) -> Offsets:
    """Moves the first partition to the end: responses are limited in size, and no partition may starve."""
    if len(positions) < 2:
        return positions
    first = next(iter(positions))
    return {**{item: offset for item, offset in positions.items() if item != first}, first: positions[first]}


def _print_all(
    rounds: Iterator[list[tuple[TopicPartition, Record]]], show: Format, out: BinaryIO, follow: bool
) -> None:
    for messages in rounds:
        out.write(b"".join([show(item, record) for item, record in messages]))
        if follow:
            out.flush()
    out.flush()
