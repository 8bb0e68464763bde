"""The history of a fault run as its clients saw it, and the anomalies in it.

Every record carries (producer, number): each producer numbers its records per partition 0, 1, 2 … At the end a new
consumer reads every log from the beginning, and ``anomalies`` compares that with everything that was acknowledged,
polled and committed on the way. Offsets have no gaps: the topics are not compacted and no transactions are used.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

EXAMPLES = 3
"""How many cases of one anomaly are spelled out."""


class Value(NamedTuple):
    producer: int
    number: int


class Send(NamedTuple):
    time_s: float
    partition: int
    value: Value


class Ack(NamedTuple):
    time_s: float
    partition: int
    value: Value
    offset: int
    """-1 where the broker said that it has the record already: a retry of one whose reply was lost."""


class Failure(NamedTuple):
    """The producer has given up; the record may be in the log or not."""

    time_s: float
    partition: int
    value: Value
    error: str


class Poll(NamedTuple):
    time_s: float
    partition: int
    offset: int
    value: Value


class Assignment(NamedTuple):
    """A member of the group was given partitions; it reads on where the group has committed."""

    time_s: float
    partitions: tuple[int, ...]


class Commit(NamedTuple):
    began_s: float
    ended_s: float
    partition: int
    offset: int
    error: str | None


class Committed(NamedTuple):
    """Somebody asked what the group has committed."""

    began_s: float
    ended_s: float
    partition: int
    offset: int


class Note(NamedTuple):
    """An error of a client, or an admin call."""

    time_s: float
    client: str
    text: str


OFFSET_INVALID = -1001
"""What librdkafka says where nothing is committed."""

Log = dict[int, list[tuple[int, Value]]]
"""Partition -> (offset, value) in the order of the log."""


@dataclass
class History:
    sends: list[Send] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    readers: dict[str, list[Poll]] = field(default_factory=lambda: defaultdict(list))
    members: dict[str, list[Poll | Assignment]] = field(default_factory=lambda: defaultdict(list))
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    """Errors after which a producer cannot go on."""
    created_topics: list[str] = field(default_factory=list)
    """Topics whose creation was acknowledged."""

    def ack_times(self) -> dict[int, list[float]]:
        """Partition -> when something was acknowledged, in order."""
        times: dict[int, list[float]] = defaultdict(list)
        for ack in self.acks:
            times[ack.partition].append(ack.time_s)
        return {partition: sorted(found) for partition, found in times.items()}

    def write(self, path: Path) -> None:
        """As JSON lines: the kind of event, the client where there are several, and its fields."""
        with gzip.open(path, "wt", compresslevel=1) as stream:
            for kind in ("sends", "acks", "failures", "commits", "committed", "notes"):
                for event in getattr(self, kind):
                    stream.write(json.dumps([kind, "", *event]) + "\n")
            for kind, clients in (("reader", self.readers), ("member", self.members)):
                for name, events in clients.items():
                    for event in events:
                        stream.write(json.dumps([f"{kind} {type(event).__name__.lower()}", name, *event]) + "\n")


def anomalies(history: History, log: Log) -> list[str]:
    """Every sentence names an anomaly; none where all is well."""
    found = [f"fatal error of a producer: {text}" for text in history.fatal]
    for check in (
        _lost_writes(history, log),
        _duplicates(log),
        _reordered(log),
        _phantoms(history, log),
        _two_values(history, log),
        *(_bad_polls(name, polls) for name, polls in history.readers.items()),
        *(_bad_member(name, events, history) for name, events in history.members.items()),
        _commits_back(history),
    ):
        cases = list(check)
        found += cases[:EXAMPLES]
        if len(cases) > EXAMPLES:
            found.append(f"… and {len(cases) - EXAMPLES} more of this kind")
    return found


def _lost_writes(history: History, log: Log) -> Iterator[str]:
    by_offset = {partition: dict(records) for partition, records in log.items()}
    values = {partition: {value for _, value in records} for partition, records in log.items()}
    for ack in history.acks:
        if ack.offset < 0:
            if ack.value not in values.get(ack.partition, ()):
                yield f"lost: {ack.value} of partition {ack.partition}, acknowledged without an offset"
        elif by_offset.get(ack.partition, {}).get(ack.offset) != ack.value:
            there = by_offset.get(ack.partition, {}).get(ack.offset)
            yield f"lost: {ack.value} acknowledged at {ack.partition}:{ack.offset}, where there is {there}"


def _duplicates(log: Log) -> Iterator[str]:
    for partition, records in log.items():
        seen: dict[Value, int] = {}
        for offset, value in records:
            if value in seen:
                yield f"duplicate: {value} at {partition}:{seen[value]} and {partition}:{offset}"
            seen[value] = offset


def _reordered(log: Log) -> Iterator[str]:
    for partition, records in log.items():
        last: dict[int, int] = {}
        for offset, value in records:
            if value.number < last.get(value.producer, -1):
                yield f"reordered: {value} at {partition}:{offset} after number {last[value.producer]}"
            last[value.producer] = value.number


def _phantoms(history: History, log: Log) -> Iterator[str]:
    sent = {(send.partition, send.value) for send in history.sends}
    for partition, records in log.items():
        for offset, value in records:
            if (partition, value) not in sent:
                yield f"phantom: {value} at {partition}:{offset} was never sent there"


def _two_values(history: History, log: Log) -> Iterator[str]:
    """The log that was read at the end is one witness; each poll is another. Acknowledgements: ``_lost_writes``."""
    by_offset = {partition: dict(records) for partition, records in log.items()}
    clients = [*history.readers.items(), *history.members.items()]
    for name, events in clients:
        for event in events:
            if not isinstance(event, Poll):
                continue
            there = by_offset.get(event.partition, {}).get(event.offset)
            if there != event.value:
                yield f"two values: {name} read {event.value} at {event.partition}:{event.offset}, later {there}"


def _bad_polls(name: str, polls: list[Poll]) -> Iterator[str]:
    following: dict[int, int] = defaultdict(int)
    for poll in polls:
        expected = following[poll.partition]
        if poll.offset != expected:
            kind = "skipping" if poll.offset > expected else "non-monotonic"
            yield f"{kind} poll: {name} got {poll.partition}:{poll.offset} instead of {expected}"
        following[poll.partition] = poll.offset + 1


def _bad_member(name: str, events: list[Poll | Assignment], history: History) -> Iterator[str]:
    following: dict[int, int | None] = {}
    assigned_s = 0.0
    for event in events:
        if isinstance(event, Assignment):
            following = dict.fromkeys(event.partitions)
            assigned_s = event.time_s
            continue
        expected = following.get(event.partition)
        if expected is None:
            yield from _bad_first_poll(name, event, assigned_s, history)
        elif event.offset != expected:
            yield f"group member {name} got {event.partition}:{event.offset} instead of {expected}"
        following[event.partition] = event.offset + 1


def _bad_first_poll(name: str, poll: Poll, assigned_s: float, history: History) -> Iterator[str]:
    """It starts where the group has committed: not before what was acknowledged, not after what anyone asked for."""
    commits = [commit for commit in history.commits if commit.partition == poll.partition]
    least = max((each.offset for each in commits if each.error is None and each.ended_s < assigned_s), default=0)
    most = max((each.offset for each in commits if each.began_s < poll.time_s), default=0)
    if poll.offset < least:
        yield f"commit went back: member {name} starts at {poll.partition}:{poll.offset}, committed was {least}"
    elif poll.offset > most:
        yield f"group skips: member {name} starts at {poll.partition}:{poll.offset}, committed was at most {most}"


def _commits_back(history: History) -> Iterator[str]:
    """A reader that begins after a commit or another reader has ended sees at least that offset."""
    known: list[tuple[float, int, int]] = [
        *((each.ended_s, each.partition, each.offset) for each in history.commits if each.error is None),
        *((each.ended_s, each.partition, each.offset) for each in history.committed),
    ]
    known.sort()
    highest: dict[int, int] = defaultdict(lambda: OFFSET_INVALID)
    position = 0
    for read in sorted(history.committed):
        while position < len(known) and known[position][0] < read.began_s:
            _, partition, offset = known[position]
            highest[partition] = max(highest[partition], offset)
            position += 1
        if read.offset < highest[read.partition]:
            yield f"commit went back: partition {read.partition} from {highest[read.partition]} to {read.offset}"
