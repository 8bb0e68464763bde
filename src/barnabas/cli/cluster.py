"""``barnabas cluster``: a cluster of processes on this machine, and faults to try on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.options import json_option, parse_pairs
from barnabas.cli.suggestions import CommandGroup

if TYPE_CHECKING:
    from barnabas.app.local_cluster import LocalCluster

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FOLDER = "cluster"
DEFAULT_BROKERS = 3


def data_option(command: F) -> F:
    return click.option(
        "--data", metavar="DIR", default=DEFAULT_FOLDER, show_default=True, help="The folder of the cluster."
    )(command)


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Run a cluster on this machine, and try faults on it.

    Brokers are processes; everything is in one folder. Use it to develop and to learn: for production run one node per
    machine (docs/CLUSTER.md).

    Examples:
      barnabas cluster up                  three brokers, data in ./cluster; Ctrl-C stops them
      barnabas cluster status              from another terminal
      barnabas cluster kill 2              kill -9 of one broker
      barnabas cluster restart 2
      barnabas cluster demo                a leader dies under load: the gap, and that nothing is lost
    """


@cluster.command()
@click.option("--brokers", type=click.IntRange(1, 50), help=f"How many (default {DEFAULT_BROKERS}).")
@data_option
@click.option(
    "--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", callback=parse_pairs, help="For every broker."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Of the first broker; the others follow.")
def up(brokers: int | None, data: str, settings: dict[str, str], port: int | None) -> None:
    """Start a cluster, show its state, and stop it with Ctrl-C.

    Examples:
      barnabas cluster up
      barnabas cluster up --brokers 5 --data /tmp/five --port 29092
      barnabas cluster up --config num.partitions=6 --config min.insync.replicas=2

    The second time, the cluster that is in the folder starts again. Ports are 9092 and up where they are free, and a
    controller's is 10000 higher. Settings given with --config are kept for later starts.
    """
    from barnabas.cli import cluster_up  # noqa: PLC0415 - keeps --help fast

    cluster_up.run(data, brokers, settings, port)


@cluster.command()
@data_option
@json_option
def status(data: str, as_json: bool) -> None:
    """Show processes, roles, leaders and partitions.

    Examples:
      barnabas cluster status
      barnabas cluster status --data /tmp/five --json
    """
    from barnabas.cli import cluster_status, cluster_view  # noqa: PLC0415 - keeps --help fast
    from barnabas.cli.output import print_json  # noqa: PLC0415

    local = _open(data)
    reader = cluster_status.StatusReader(local)
    try:
        found = reader.read()
    finally:
        reader.close()
    if as_json:
        print_json(cluster_status.as_json(found, str(local.folder)))
    else:
        cluster_view.print_status(found, str(local.folder))


@cluster.command(epilog="\b\nExamples:\n  barnabas cluster stop\n  barnabas cluster stop --data /tmp/five")
@data_option
def stop(data: str) -> None:
    """Stop all brokers cleanly, and `cluster up` with them."""
    from barnabas.cli import cluster_up  # noqa: PLC0415 - keeps --help fast

    cluster_up.stop(_open(data))


@cluster.command(epilog="\b\nExamples:\n  barnabas cluster kill 2")
@click.argument("node", type=int)
@data_option
def kill(node: int, data: str) -> None:
    """End a broker at once, as a crash does (kill -9)."""
    local = _open(data)
    _check_running(local, node)
    local.kill(node)
    click.echo(f"Killed node {node}.")


@cluster.command(epilog="\b\nExamples:\n  barnabas cluster pause 2\n  barnabas cluster resume 2")
@click.argument("node", type=int)
@data_option
def pause(node: int, data: str) -> None:
    """Make a broker's process stand still (SIGSTOP); its connections stay open."""
    local = _open(data)
    _check_running(local, node)
    local.pause(node)
    click.echo(f"Paused node {node}.")


@cluster.command(epilog="\b\nExamples:\n  barnabas cluster resume 2")
@click.argument("node", type=int)
@data_option
def resume(node: int, data: str) -> None:
    """Let a paused broker go on."""
    local = _open(data)
    _check_running(local, node)
    local.resume(node)
    click.echo(f"Node {node} goes on.")


@cluster.command(epilog="\b\nExamples:\n  barnabas cluster restart 2")
@click.argument("node", type=int)
@data_option
def restart(node: int, data: str) -> None:
    """Start a broker; stop it first, cleanly, where it runs."""
    from barnabas.model.errors import StartError  # noqa: PLC0415 - keeps --help fast

    local = _open(data)
    _check_known(local, node)
    local.resume(node)
    local.stop(node)
    try:
        local.start(node)
        local.wait_for(node)
    except StartError as problem:
        raise click.ClickException(str(problem)) from problem
    click.echo(f"Node {node} serves at {local.nodes[node].address}.")


@cluster.command()
@click.option("--rate", type=click.IntRange(10, 50_000), default=500, show_default=True, help="Messages a second.")
def demo(rate: int) -> None:
    """Kill the leader of a cluster under load: the gap, and that nothing is lost.

    Examples:
      barnabas cluster demo
      barnabas cluster demo --rate 2000

    Takes about 40 seconds, uses free ports and a temporary folder, and exits with 1 if anything was lost.
    """
    import sys  # noqa: PLC0415 - keeps --help fast

    from barnabas.cli import demo as story  # noqa: PLC0415

    sys.exit(story.run(rate))


def _open(data: str) -> LocalCluster:
    from pathlib import Path  # noqa: PLC0415 - keeps --help fast

    from barnabas.app.local_cluster import LocalCluster  # noqa: PLC0415
    from barnabas.app.program import program  # noqa: PLC0415
    from barnabas.model.errors import StartError  # noqa: PLC0415

    try:
        return LocalCluster.open(Path(data).absolute())
    except StartError as problem:
        raise click.ClickException(f"{problem} Start one with: {program()} cluster up --data {data}") from problem


def _check_known(local: LocalCluster, node: int) -> None:
    if node not in local.nodes:
        known = ", ".join(map(str, local.nodes))
        raise click.ClickException(f"The cluster in {local.folder} has no node {node}; it has {known}.")


def _check_running(local: LocalCluster, node: int) -> None:
    _check_known(local, node)
    if not local.is_running(node):
        raise click.ClickException(f"Node {node} of the cluster in {local.folder} does not run.")
