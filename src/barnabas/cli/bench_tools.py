"""Shared by the load generators: percentiles, pacing, the progress line, the temporary topic."""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from barnabas.cli.output import print_json, print_table

PERCENTILES = (50.0, 99.0, 99.9)
EXIT_INTERRUPTED = 130
MAX_SAMPLES = 1_000_000
"""Latencies kept; what comes after the millionth replaces older ones."""


class Samples:
    """Latencies in seconds."""

    def __init__(self) -> None:
        self._values = array("d")
        self._next = 0

    def add(self, seconds: float) -> None:
        if len(self._values) < MAX_SAMPLES:
            self._values.append(seconds)
            return
        self._values[self._next % MAX_SAMPLES] = seconds
        self._next += 1

    def summary_ms(self) -> dict[str, float]:
        """Milliseconds by name; empty without a sample."""
        if not self._values:
            return {}
        values = sorted(self._values)
        found = {f"p{percentile:g}": _at(values, percentile) for percentile in PERCENTILES}
        return {name: round(value * 1000, 3) for name, value in {**found, "max": values[-1]}.items()}


def _at(values: Sequence[float], percentile: float) -> float:
    """The nearest rank: a value that was really measured."""
    rank = -(-len(values) * percentile // 100)
    return values[min(len(values), max(1, int(rank))) - 1]


class Progress:
    """A line a second on standard error, where a person looks."""

    def __init__(self, unit: str = "messages") -> None:
        self._shown = sys.stderr.isatty()
        self._unit = unit
        self._started = self._last = time.monotonic()
        self._count = 0

    def show(self, count: int) -> None:
        now = time.monotonic()
        if not self._shown or now - self._last < 1.0:
            return
        rate = (count - self._count) / (now - self._last)
        line = f"{now - self._started:5.0f} s  {count:,} {self._unit}  {rate:,.0f}/s"
        click.echo(f"\r{line}\x1b[K", err=True, nl=False)
        self._last, self._count = now, count

    def end(self) -> None:
        if self._shown and self._count:
            click.echo("\r\x1b[K", err=True, nl=False)


class Pace:
    """Holds a sender to so many messages a second; none for no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._started = time.monotonic()

    def allowed(self, sent: int) -> int:
        """How many more may go now."""
        if self._rate is None:
            return sys.maxsize
        return int((time.monotonic() - self._started) * self._rate) + 1 - sent

    def wait_s(self, sent: int) -> float:
        """Until the next one is due."""
        if self._rate is None:
            return 0.0
        return max(0.0, self._started + sent / self._rate - time.monotonic())


class Until:
    """So many messages, or so many seconds: whichever comes first of those that were given."""

    def __init__(self, messages: int | None, duration_s: float | None) -> None:
        self.messages = sys.maxsize if messages is None else messages
        self._deadline = None if duration_s is None else time.monotonic() + duration_s

    def left(self, count: int) -> int:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return 0
        return self.messages - count


@contextmanager
def bench_topic(bootstrap: str, name: str | None, partitions: int, keep: bool) -> Iterator[str]:
    """A topic for the run: the one named where it exists, else one that is made and taken away again."""
    from barnabas.client.wire import BrokerError, Client, admin  # noqa: PLC0415 - keeps --help fast
    from barnabas.model.errors import ErrorCode  # noqa: PLC0415

    topic = name or f"barnabas-bench-{os.urandom(4).hex()}"
    with Client(bootstrap) as client:
        try:
            admin.create_topic(client, topic, partitions=partitions, replication_factor=-1)
            created = True
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            created = False
    try:
        yield topic
    finally:
        if created and not keep:
            with Client(bootstrap) as client:
                admin.delete_topics(client, [topic])


def rates(messages: int, size: int, seconds: float) -> dict[str, Any]:
    rate = messages / seconds if seconds > 0 else 0.0
    return {
        "messages": messages,
        "seconds": round(seconds, 3),
        "messages_per_second": round(rate, 1),
        "megabytes_per_second": round(rate * size / 1e6, 3),
    }


def report(result: dict[str, Any], as_json: bool) -> None:
    """Rates and percentiles, flattened for a person."""
    if as_json:
        print_json(result)
        return
    if result["interrupted"] and not result["messages"]:
        return
    rows: list[list[object]] = []
    for key, value in result.items():
        name = key.replace("_", " ")
        if value == "" or isinstance(value, bool):
            continue
        if isinstance(value, dict):
            rows += [[f"{name} {part}", f"{number:,} ms"] for part, number in value.items()]
        else:
            rows.append([name, f"{value:,}" if isinstance(value, (int, float)) else value])
    print_table(["measure", "value"], rows)


def end_if_interrupted(result: dict[str, Any], messages: int | None, duration_s: float | None) -> None:
    """Says over how much was measured, and ends with the exit code of Ctrl-C."""
    if not result["interrupted"]:
        return
    if result["messages"]:
        wanted = [f"{messages:,} messages"] if messages is not None else []
        wanted += [f"{duration_s:g} s"] if duration_s is not None else []
        measured = f"{result['messages']:,} messages in {result['seconds']:.1f} s"
        click.echo(f"Interrupted: measured over {measured}, of {' or '.join(wanted)} asked for.", err=True)
    else:
        click.echo("Interrupted before anything was measured.", err=True)
    raise click.exceptions.Exit(EXIT_INTERRUPTED)
