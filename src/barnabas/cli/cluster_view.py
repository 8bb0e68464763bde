"""Shows the state of a local cluster: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from typing import Any, Self

import click

from barnabas.cli.cluster_status import ClusterStatus, NodeStatus
from barnabas.cli.output import counted, print_table, size_text

COLUMNS = ("node", "address", "state", "role", "leaders", "replicas", "out of sync", "pid")
COLOURS = {"serving": "green", "fenced": "yellow", "paused": "yellow", "stopped": "red"}


def row(node: NodeStatus) -> list[object]:
    shown = [node.node_id, node.address, node.state, node.role, node.leaders, node.replicas, node.out_of_sync]
    return [*shown, node.pid]


def partitions_text(status: ClusterStatus) -> str:
    if status.partitions is None:
        return "no broker answers"
    text = f"{counted(status.partitions, 'partition')} of {counted(status.topics or 0, 'topic')}"
    return f"{text}, {status.under_replicated} under-replicated, {status.offline} offline"


def rates_text(status: ClusterStatus) -> str:
    if status.messages_per_second is None:
        return ""
    received, sent = size_text(status.bytes_in_per_second or 0), size_text(status.bytes_out_per_second or 0)
    return f"{status.messages_per_second:,.0f} messages/s in, {received}/s in, {sent}/s out (followers included)"


def print_status(status: ClusterStatus, folder: str) -> None:
    print_table(COLUMNS, [row(node) for node in status.nodes], title=f"Cluster {status.cluster_id} in {folder}")
    controller = "none" if status.controller is None else f"node {status.controller}"
    click.echo(f"controller: {controller}; {partitions_text(status)}")


def change_line(status: ClusterStatus) -> str:
    """All that does not change by itself, in one line."""
    nodes = ", ".join(f"{node.node_id} {node.state} ({counted(node.leaders, 'leader')})" for node in status.nodes)
    controller = "none" if status.controller is None else status.controller
    return f"nodes: {nodes}; controller: {controller}; {partitions_text(status)}"


class PlainView:
    """Prints a line when something has changed."""

    def __init__(self) -> None:
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, status: ClusterStatus) -> None:
        line = change_line(status)
        if line != self._last:
            self._last = line
            click.echo(f"{time.strftime('%H:%M:%S')} {line}")


class LiveView:
    """Keeps a table up to date, for as long as the context is open."""

    def __init__(self, folder: str, servers: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where a person looks
        from rich.live import Live  # noqa: PLC0415

        self._folder = folder
        self._servers = servers
        self._live = Live(console=Console(), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: ClusterStatus) -> None:
        self._live.update(self._render(status), refresh=True)

    def _render(self, status: ClusterStatus) -> Any:
        from rich.console import Group  # noqa: PLC0415 - only where a person looks
        from rich.text import Text  # noqa: PLC0415

        controller = "none" if status.controller is None else f"node {status.controller}"
        is_well = not status.under_replicated and not status.offline and status.partitions is not None
        return Group(
            Text(f"Cluster in {self._folder}, bootstrap servers {self._servers}", style="bold"),
            node_table(status),
            Text(f" controller  {controller}"),
            Text(f" partitions  {partitions_text(status)}", style="" if is_well else "red"),
            Text(f" traffic     {rates_text(status)}"),
            Text(" Ctrl-C stops all brokers.", style="dim"),
        )


def node_table(status: ClusterStatus) -> Any:
    from rich.box import SIMPLE  # noqa: PLC0415 - only where a person looks
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("address", "state", "role") else "right")
    for node in status.nodes:
        cells = [Text("-" if cell is None else str(cell)) for cell in row(node)]
        cells[2].stylize(COLOURS.get(node.state, ""))
        table.add_row(*cells)
    return table
