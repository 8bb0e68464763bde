"""``barnabas storage``: gives data folders the identity of a cluster, with the flags of Kafka's storage tool."""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.cli.options import json_option
from barnabas.cli.suggestions import CommandGroup
from barnabas.model.errors import StartError

EXAMPLES = """
\b
Examples:
  barnabas storage random-uuid
  barnabas storage format -t UUID -c node1.properties --standalone
  barnabas storage format -t UUID -c node1.properties \\
    --initial-controllers "1@host1:9093:DIRECTORY1,2@host2:9093:DIRECTORY2,3@host3:9093:DIRECTORY3"
  barnabas storage format -t UUID -c node4.properties --no-initial-controllers
  barnabas storage info -c node1.properties
"""


@click.group(cls=CommandGroup, epilog=EXAMPLES)
def storage() -> None:
    """Format and inspect data folders.

    A single broker formats its folder by itself. The nodes of a cluster are formatted once, all with the same cluster
    id: the first controllers with the same --initial-controllers, nodes that join later with
    --no-initial-controllers.
    """


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a random id, for a cluster or a directory."""
    import random  # noqa: PLC0415 -- keeps --help fast

    from barnabas.model.ids import uuid_text  # noqa: PLC0415
    from barnabas.node.format import random_uuid as make  # noqa: PLC0415

    text = "-"
    while text.startswith("-"):  # it would be taken for an option
        text = uuid_text(make(random.SystemRandom()))
    click.echo(text)


@storage.command("format", epilog=EXAMPLES)
@click.option("-t", "--cluster-id", required=True, metavar="UUID", help="The id of the cluster, from random-uuid.")
@click.option("-c", "--config", required=True, metavar="FILE", help="The settings of the node (server.properties).")
@click.option("-s", "--standalone", is_flag=True, help="This node is the only controller of a new cluster.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY,...",
    help="The first controllers of a new cluster; the same for each of them.",
)
@click.option("-N", "--no-initial-controllers", is_flag=True, help="The node joins an existing cluster.")
@click.option("-g", "--ignore-formatted", is_flag=True, help="Leave folders that are formatted already as they are.")
@click.option("-f", "--feature", "features", multiple=True, metavar="NAME=LEVEL", help="The level of a feature.")
@click.option("-r", "--release-version", metavar="VERSION", help="Kafka's release whose features a new cluster has.")
@click.option("--workers", is_flag=True, help="The node is worker 0 of `serve --workers`: its folders are worker-0.")
def format_folders(
    cluster_id: str,
    config: str,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    features: tuple[str, ...],
    release_version: str | None,
    workers: bool,
) -> None:
    """Format the data folders of a node."""
    from barnabas.app import storage_tool  # noqa: PLC0415 -- keeps --help fast

    chosen = [standalone, initial_controllers is not None, no_initial_controllers]
    if sum(chosen) > 1:
        raise click.UsageError("Give one of --standalone, --initial-controllers and --no-initial-controllers.")
    plan = _or_exit(
        lambda: storage_tool.plan(
            config=config,
            cluster_id=cluster_id,
            standalone=standalone,
            initial_controllers=initial_controllers,
            features=features,
            release_version=release_version,
            has_choice=any(chosen),
            below="worker-0" if workers else None,
        )
    )
    for line in _or_exit(lambda: storage_tool.carry_out(plan, ignore_formatted=ignore_formatted)):
        click.echo(line)


@storage.command()
@click.option("-c", "--config", required=True, metavar="FILE", help="The settings of the node (server.properties).")
@json_option
def info(config: str, as_json: bool) -> None:
    """Show the identity of a node's data folders; exits with 1 where something is wrong with them."""
    from barnabas.app import storage_tool  # noqa: PLC0415 -- keeps --help fast
    from barnabas.cli.output import print_json  # noqa: PLC0415

    found: Any = _or_exit(lambda: storage_tool.inspect(config))
    if as_json:
        print_json(found)
    else:
        click.echo("Found log directory:" if len(found["directories"]) == 1 else "Found log directories:")
        for directory in found["directories"]:
            click.echo(f"  {directory['path']}")
            for key, value in directory["properties"].items():
                click.echo(f"    {key}={value}")
        if found["voters"]:
            click.echo("Voters: " + ", ".join(found["voters"]))
        for problem in found["problems"]:
            click.echo(f"Problem: {problem}")
    sys.exit(1 if found["problems"] else 0)


def _or_exit(work: Any) -> Any:
    try:
        return work()
    except StartError as problem:
        click.echo(f"barnabas: {problem}", err=True)
        sys.exit(1)
