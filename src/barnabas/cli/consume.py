"""``barnabas consume``: prints messages."""

from __future__ import annotations

import re
from typing import Any

import click

from barnabas.app.program import program
from barnabas.cli.options import bootstrap_option, time_option
from barnabas.cli.suggestions import Command

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def _check_offset(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if value not in ("earliest", "latest") and not re.fullmatch(r"-?\d{1,18}", value):
        raise click.BadParameter(f"{value!r} is none of earliest, latest, N, -N")
    return value


@click.command(cls=Command)
@click.argument("topic")
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="May be repeated; or all.")
@click.option(
    "--offset",
    "-o",
    default="earliest",
    show_default=True,
    metavar="earliest|latest|N|-N",
    callback=_check_offset,
    help="Where to begin; -N is the last N of each partition.",
)
@click.option("--from-time", metavar="TIME", callback=time_option, help="Begin at milliseconds, ISO 8601, or -1h ago.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more at the end.")
@click.option("--max-messages", "-n", type=click.IntRange(1), help="Stop after so many.")
@click.option("--format", "style", type=click.Choice(["value", "full", "json"]), default="value", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json: an object a line.")
@click.option("--group", "-g", help="Read as a member of this group, and commit what was printed.")
@click.option(
    "--isolation-level",
    type=click.Choice(ISOLATION_LEVELS),
    default=ISOLATION_LEVELS[0],
    show_default=True,
    help="read_committed: leave out what transactions have not committed.",
)
@click.option("--transactional-id", metavar="ID", help="With --group: commit offsets in transactions.")
@bootstrap_option
def consume(topic: str, style: str, as_json: bool, group: str | None, bootstrap: str, **options: Any) -> None:
    """Print the messages of a topic, by partition and offset. Stops at the end, unless it follows.

    As a member of a group it goes on where the group left off, and --offset says where a new group begins.

    Examples:
      barnabas consume hello
      barnabas consume hello --offset -10 --format full
      barnabas consume hello --partition 0 --offset 42 --max-messages 1
      barnabas consume hello --from-time -1h --json
      barnabas consume hello --offset latest --follow
      barnabas consume hello --group billing --follow
      barnabas consume hello --group billing --transactional-id billing-1 --isolation-level read_committed

    With --transactional-id, the offsets of up to 500 messages go into a transaction, then the messages are printed,
    then the transaction is committed. A member that was fenced or has lost its partitions prints nothing, and where
    output fails, nothing is committed. Only a crash between printing and the commit makes the next run print those
    messages again; none is skipped.
    """
    if options["from_time"] is not None and options["offset"] != "earliest":
        raise click.UsageError("--offset and --from-time exclude each other.")
    if options["transactional_id"] is not None and group is None:
        raise click.UsageError("--transactional-id goes with --group.")
    options["read_committed"] = options["isolation_level"] == "read_committed"
    style = "json" if as_json else style
    if group is not None:
        _consume_in_group(topic, group, style, bootstrap, options)
        return
    from barnabas.cli import consume_partitions  # noqa: PLC0415 - keeps --help fast

    consume_partitions.consume(topic, style, bootstrap, options)


def _consume_in_group(topic: str, group: str, style: str, bootstrap: str, options: dict[str, Any]) -> None:
    if options["partitions"] or options["from_time"] is not None or options["offset"] not in ("earliest", "latest"):
        raise click.UsageError(
            "A group decides itself what it reads: --group goes with --offset earliest or latest alone. "
            f"To move a group: {program()} group reset-offsets"
        )
    from barnabas.cli import consume_group  # noqa: PLC0415 - keeps --help fast

    consume_group.consume(topic, group, style, bootstrap, options)
