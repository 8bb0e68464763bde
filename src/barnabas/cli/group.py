"""``barnabas group``: list, describe, reset-offsets, delete."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.options import bootstrap_option, json_option, time_option
from barnabas.cli.suggestions import CommandGroup

EXAMPLES = """
\b
Examples:
  barnabas group list
  barnabas group describe billing
  barnabas group reset-offsets billing --to-earliest
  barnabas group reset-offsets billing --to-time -1h --execute
  barnabas group delete billing --yes
"""


@click.group(cls=CommandGroup, epilog=EXAMPLES)
def group() -> None:
    """List, describe and delete consumer groups, and move where they read."""


@group.command(
    "list",
    epilog="""
\b
Examples:
  barnabas group list
  barnabas group list --state stable --json
""",
)
@click.option("--state", "states", multiple=True, help="Only groups in this state: stable, empty, ... May be repeated.")
@bootstrap_option
@json_option
def list_groups(states: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List groups."""
    from barnabas.cli import group_admin  # noqa: PLC0415 - keeps --help fast

    group_admin.list_groups(states, bootstrap, as_json)


@group.command(
    epilog="""
\b
Examples:
  barnabas group describe billing
  barnabas group describe billing audit --json

Lag is counted in messages, and in time: how long ago the first message was written that the group has not read.
"""
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show members, what each reads, lag, and the last rebalances with their causes."""
    from barnabas.cli import group_admin  # noqa: PLC0415 - keeps --help fast

    group_admin.describe(names, bootstrap, as_json)


@group.command(
    "reset-offsets",
    epilog="""
\b
Examples:
  barnabas group reset-offsets billing --to-earliest
  barnabas group reset-offsets billing --topic orders --to-latest --execute
  barnabas group reset-offsets billing --topic orders:0,3 --to-offset 42 --execute
  barnabas group reset-offsets billing --to-time 2026-01-31T12:00:00+00:00
  barnabas group reset-offsets billing --shift -100

Nothing is changed without --execute. The group must have no members.
""",
)
@click.argument("name")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:N,N]", help="Only these; all it committed without.")
@click.option("--to-earliest", is_flag=True, help="To the first message there is.")
@click.option("--to-latest", is_flag=True, help="To the end: what is there now is skipped.")
@click.option("--to-time", metavar="TIME", callback=time_option, help="To milliseconds, ISO 8601, or -1h ago.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift", type=int, help="By so many messages, forward or back.")
@click.option("--execute", is_flag=True, help="Do it, rather than show what would be done.")
@bootstrap_option
@json_option
def reset_offsets(name: str, topics: tuple[str, ...], bootstrap: str, as_json: bool, **wanted: Any) -> None:
    """Move where a group reads on."""
    execute = wanted.pop("execute")
    chosen = {key: value for key, value in wanted.items() if value is not None and value is not False}
    if len(chosen) != 1:
        raise click.UsageError("Give one of --to-earliest, --to-latest, --to-time, --to-offset, --shift.")
    from barnabas.cli import group_reset  # noqa: PLC0415 - keeps --help fast

    ((how, value),) = chosen.items()
    group_reset.reset_offsets(name, topics, (how, value), execute, bootstrap, as_json)


@group.command(
    epilog="""
\b
Examples:
  barnabas group delete billing
  barnabas group delete billing audit --yes
"""
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)} with all committed offsets?", abort=True, err=True)
    from barnabas.cli import group_admin  # noqa: PLC0415 - keeps --help fast

    group_admin.delete(names, bootstrap, as_json)
