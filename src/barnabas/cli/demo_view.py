"""Shows ``barnabas cluster demo``: a live picture on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from typing import Any, Protocol, Self

import click

from barnabas.cli.cluster_status import ClusterStatus
from barnabas.cli.cluster_view import change_line, node_table
from barnabas.cli.demo_load import BUCKET_S, SteadyProducer

BARS = " ▁▂▃▄▅▆▇█"
STEADY_HEIGHT = 5
WIDTH = 72
"""Half seconds in the picture."""


class View(Protocol):
    def step(self, text: str) -> None:
        """The next part of the story begins."""

    def show(self, status: ClusterStatus | None, load: SteadyProducer | None, read: int) -> None:
        """The present state."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class PlainView:
    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _say(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._began_s:5.1f} s  {text}")

    def step(self, text: str) -> None:
        self._say(text)

    def show(self, status: ClusterStatus | None, load: SteadyProducer | None, read: int) -> None:
        line = "" if status is None else change_line(status)
        if line and line != self._last:
            self._last = line
            self._say(f"  {line}" + ("" if load is None else f"; {load.acknowledged} acknowledged, {read} read"))


class LiveView:
    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where a person looks
        from rich.live import Live  # noqa: PLC0415

        self._live = Live(console=Console(), auto_refresh=False)
        self._began_s = time.monotonic()
        self._steps: list[tuple[float, str]] = []

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def step(self, text: str) -> None:
        self._steps.append((time.monotonic() - self._began_s, text))

    def show(self, status: ClusterStatus | None, load: SteadyProducer | None, read: int) -> None:
        from rich.console import Group  # noqa: PLC0415 - only where a person looks
        from rich.text import Text  # noqa: PLC0415

        parts: list[Any] = [Text("A leader dies under load", style="bold"), Text("")]
        for number, (at_s, text) in enumerate(self._steps, 1):
            parts.append(Text(f" {at_s:5.1f} s  {text}", style="bold" if number == len(self._steps) else "dim"))
        if status is not None:
            parts.append(node_table(status))
        if load is not None:
            parts += [Text(line) for line in picture(load, read)]
        self._live.update(Group(*parts), refresh=True)


def picture(load: SteadyProducer, read: int) -> list[str]:
    """A row of bars for each partition: acknowledgements in each half second."""
    now = load.bucket
    first = max(0, now - WIDTH)
    lines = [f" acknowledged, per partition and {BUCKET_S} s:"]
    for number, tally in load.tallies.items():
        bars = "".join(BARS[_height(tally.buckets[n] / load.steady_per_bucket)] for n in range(first, now))
        lines.append(f"   {number}  {bars}")
    lines.append(f" {load.sent:,} sent, {load.acknowledged:,} acknowledged, {read:,} read by the group")
    return lines


def _height(share: float) -> int:
    """The steady rate is below the top, so that more of it can be seen; anything but nothing is seen too."""
    return 0 if share == 0 else max(1, min(len(BARS) - 1, round(share * STEADY_HEIGHT)))
