"""``barnabas topic``: create, list, describe, alter, delete."""

from __future__ import annotations

import click

from barnabas.cli.options import bootstrap_option, json_option, parse_pairs
from barnabas.cli.suggestions import CommandGroup

EXAMPLES = """
\b
Examples:
  barnabas topic create hello --partitions 3 --config retention.ms=86400000
  barnabas topic list
  barnabas topic describe hello
  barnabas topic alter hello --partitions 6 --delete-config retention.ms
  barnabas topic delete hello --yes
"""


@click.group(cls=CommandGroup, epilog=EXAMPLES)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command(
    epilog="""
\b
Examples:
  barnabas topic create hello
  barnabas topic create orders --partitions 12 --config cleanup.policy=compact
  barnabas topic create orders --if-not-exists --json
"""
)
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(1), help="How many; the broker's num.partitions without.")
@click.option("--replication-factor", "-r", type=click.IntRange(1, 32767), help="Copies; the broker's default without.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", callback=parse_pairs, help="A setting.")
@click.option("--if-not-exists", is_flag=True, help="Succeed where the topic is there already.")
@bootstrap_option
@json_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic."""
    from barnabas.cli import topic_admin  # noqa: PLC0415 - keeps --help fast

    topic_admin.create(name, partitions, replication_factor, configs, if_not_exists, bootstrap, as_json)


@topic.command(
    "list",
    epilog="""
\b
Examples:
  barnabas topic list
  barnabas topic list --internal --json
""",
)
@click.option("--internal", is_flag=True, help="Also the topics that the brokers keep for themselves.")
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List topics."""
    from barnabas.cli import topic_admin  # noqa: PLC0415 - keeps --help fast

    topic_admin.list_topics(internal, bootstrap, as_json)


@topic.command(
    epilog="""
\b
Examples:
  barnabas topic describe hello
  barnabas topic describe hello orders --json
"""
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show partitions, replicas, offsets, sizes, and settings that are not the default."""
    from barnabas.cli import topic_admin  # noqa: PLC0415 - keeps --help fast

    topic_admin.describe(names, bootstrap, as_json)


@topic.command(
    epilog="""
\b
Examples:
  barnabas topic alter hello --partitions 6
  barnabas topic alter hello --config retention.ms=3600000 --delete-config cleanup.policy
"""
)
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(1), help="Grow to so many. There is no way back.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", callback=parse_pairs, help="Set one.")
@click.option("--delete-config", "deleted", multiple=True, metavar="KEY", help="Give a setting back its default.")
@bootstrap_option
@json_option
def alter(
    name: str,
    partitions: int | None,
    configs: dict[str, str],
    deleted: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Add partitions, change settings."""
    if not (partitions or configs or deleted):
        raise click.UsageError("Nothing to alter: give --partitions, --config or --delete-config.")
    from barnabas.cli import topic_admin  # noqa: PLC0415 - keeps --help fast

    topic_admin.alter(name, partitions, configs, deleted, bootstrap, as_json)


@topic.command(
    epilog="""
\b
Examples:
  barnabas topic delete hello
  barnabas topic delete hello orders --yes
"""
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics and all their messages."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)} and all messages?", abort=True, err=True)
    from barnabas.cli import topic_admin  # noqa: PLC0415 - keeps --help fast

    topic_admin.delete(names, bootstrap, as_json)
