"""``barnabas partition``: moves of replicas, elections, balance."""

from __future__ import annotations

import re
from typing import Any

import click

from barnabas.cli.options import server_options, throttle_option, wait_option
from barnabas.cli.suggestions import CommandGroup

_IDS = re.compile(r"\d+(,\d+)*")


def _broker_ids(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    if not _IDS.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a list of broker ids like 1,2,3")
    return list(dict.fromkeys(map(int, value.split(","))))


@click.group(cls=CommandGroup)
def partition() -> None:
    """Move replicas, elect leaders, balance a cluster.

    Examples:
      barnabas partition reassign generate --topic orders --replication-factor 3 > plan.json
      barnabas partition reassign execute plan.json
      barnabas partition elect-leaders --all
      barnabas partition problems
      barnabas partition balance                        shows the plan; --execute carries it out
    """


@partition.group(cls=CommandGroup)
def reassign() -> None:
    """Move partitions to other brokers, or change their number of replicas.

    Examples:
      barnabas partition reassign generate --topic orders --brokers 1,2,3 > plan.json
      barnabas partition reassign execute plan.json --throttle 50000000
      barnabas partition reassign verify plan.json
      barnabas partition reassign cancel plan.json

    The files are those of kafka-reassign-partitions.
    """


@reassign.command()
@click.option("--topic", "-t", "topics", multiple=True, metavar="NAME", help="Repeatable.")
@click.option(
    "--topics-to-move-json-file", "topics_file", type=click.File("rb"), metavar="FILE", help="Kafka's file of topics."
)
@click.option("--all", "every", is_flag=True, help="All topics; internal ones only with --internal.")
@click.option("--internal", is_flag=True, help="Also topics that the brokers keep for themselves, with --all.")
@click.option("--brokers", "--broker-list", metavar="1,2,3", callback=_broker_ids, help="All that serve, without.")
@click.option("--replication-factor", "-r", type=click.IntRange(1, 32767), help="As it is, without.")
@server_options
def generate(**options: Any) -> None:
    """Propose where the partitions of topics go.

    Examples:
      barnabas partition reassign generate --topic orders > plan.json
      barnabas partition reassign generate --topics-to-move-json-file topics.json --brokers 1,2,3 > plan.json
      barnabas partition reassign generate --all --internal --replication-factor 3 > plan.json

    The plan goes to standard output, a summary to standard error. Replicas that can stay do; replicas of a partition
    are on different racks as far as there are racks.
    """
    if not (options["topics"] or options["topics_file"] or options["every"]):
        raise click.UsageError("Give --topic, --topics-to-move-json-file or --all.")
    from barnabas.cli import reassign as work  # noqa: PLC0415 - keeps --help fast

    work.generate(**options)


@reassign.command()
@click.argument("plan", type=click.File("rb"))
@click.option("--additional", is_flag=True, help="Also while other moves are under way.")
@throttle_option
@wait_option
@server_options
def execute(plan: Any, additional: bool, throttle: int | None, wait: bool, bootstrap: str, as_json: bool) -> None:
    """Carry out the moves of a file.

    Examples:
      barnabas partition reassign execute plan.json
      barnabas partition reassign execute plan.json --throttle 50000000 --no-wait

    With --no-wait, `verify` tells when the moves are done and removes the throttle. The assignment before is printed,
    for the way back.
    """
    from barnabas.cli import reassign as work  # noqa: PLC0415 - keeps --help fast

    work.execute(plan, additional, throttle, wait, bootstrap, as_json)


@reassign.command(
    epilog="\b\nExamples:\n  barnabas partition reassign verify plan.json\n\nExits with 1 while something is not done."
)
@click.argument("plan", type=click.File("rb"))
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@server_options
def verify(plan: Any, preserve_throttles: bool, bootstrap: str, as_json: bool) -> None:
    """Tell which moves of a file are done; remove throttles when all are."""
    from barnabas.cli import reassign as work  # noqa: PLC0415 - keeps --help fast

    work.verify(plan, preserve_throttles, bootstrap, as_json)


@reassign.command()
@click.argument("plan", type=click.File("rb"), required=False)
@click.option("--all", "every", is_flag=True, help="Whatever moves.")
@server_options
def cancel(plan: Any, every: bool, bootstrap: str, as_json: bool) -> None:
    """Stop moves that are under way: partitions go back to the replicas before.

    Examples:
      barnabas partition reassign cancel plan.json
      barnabas partition reassign cancel --all
    """
    if (plan is None) != every:
        raise click.UsageError("Give a file, or --all.")
    from barnabas.cli import reassign as work  # noqa: PLC0415 - keeps --help fast

    work.cancel(plan, bootstrap, as_json)


@partition.command("elect-leaders")
@click.option("--type", "kind", type=click.Choice(["preferred", "unclean"]), default="preferred", show_default=True)
@click.option("--topic", "-t", metavar="NAME", help="All its partitions, or the one of --partition.")
@click.option("--partition", "-p", "number", type=click.IntRange(0), help="Of --topic.")
@click.option("--path-to-json-file", "file", type=click.File("rb"), metavar="FILE", help="Kafka's file of partitions.")
@click.option("--all", "every", is_flag=True, help="All partitions; for preferred leaders.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before an unclean election.")
@server_options
def elect_leaders(
    kind: str,
    topic: str | None,
    number: int | None,
    file: Any,
    every: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Make preferred replicas leaders, or elect where no replica is in sync.

    Examples:
      barnabas partition elect-leaders --all
      barnabas partition elect-leaders --topic orders --partition 3
      barnabas partition elect-leaders --type unclean --topic orders --partition 3 --yes

    A preferred leader is the first replica. An unclean election may lose records: it takes a replica that is not in
    sync, where no other is left.
    """
    if [topic is not None, file is not None, every].count(True) != 1:
        raise click.UsageError("Give one of --topic, --path-to-json-file and --all.")
    if number is not None and topic is None:
        raise click.UsageError("--partition goes with --topic.")
    if kind == "unclean" and every:
        raise click.UsageError("An unclean election is for partitions that are named: give --topic.")
    if kind == "unclean" and not yes:
        click.confirm("An unclean election may lose records. Go on?", abort=True, err=True)
    from barnabas.cli import reassign as work  # noqa: PLC0415 - keeps --help fast

    work.elect(kind, topic, number, file, bootstrap, as_json)


@partition.command()
@click.option("--execute/--dry-run", default=False, help="Carry it out (default: --dry-run).")
@click.option("--max-moves", type=click.IntRange(0), default=100, show_default=True, help="Replicas to copy at most.")
@click.option("--tolerance", type=click.IntRange(0, 100), default=10, show_default=True, help="In percent.")
@throttle_option
@wait_option
@server_options
def balance(**options: Any) -> None:
    """Even out the load of the brokers: propose moves, or carry them out.

    Examples:
      barnabas partition balance                        the plan, and the brokers before and after
      barnabas partition balance --execute
      barnabas partition balance --execute --throttle 50000000 --max-moves 20

    Evens out replicas and bytes per broker, then leaders per broker, and puts replicas of a partition on different
    racks. Small differences are left alone. --json prints the plan as a file for `reassign execute`.
    """
    from barnabas.cli import balance as work  # noqa: PLC0415 - keeps --help fast

    work.run(**options)


@partition.command()
@server_options
def problems(bootstrap: str, as_json: bool) -> None:
    """List partitions that are offline, under min ISR or under-replicated.

    Examples:
      barnabas partition problems
      barnabas partition problems --json

    Offline: no leader, neither writes nor reads. Under min ISR: writes with acks=all are refused. Under-replicated: not
    all replicas are in sync. Exits with 1 where there is any, or where the metadata quorum has no leader.
    """
    from barnabas.cli import partition_problems  # noqa: PLC0415 - keeps --help fast

    partition_problems.run(bootstrap, as_json)
