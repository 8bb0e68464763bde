"""``barnabas transaction``: list, describe, abort, find-hanging (KIP-664)."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.options import duration_option, partition_option, server_options
from barnabas.cli.suggestions import CommandGroup
from barnabas.client.wire.transactions import STATES, TransactionFilter
from barnabas.model.ids import TopicPartition

DEFAULT_TIMEOUT_MINUTES = 15
"""Kafka's transaction.max.timeout.ms: the coordinator ends what is open for longer."""


@click.group(cls=CommandGroup)
def transaction() -> None:
    """List, describe and abort transactions, and find those that hang.

    Examples:
      barnabas transaction list --state ongoing
      barnabas transaction describe billing-1
      barnabas transaction describe --partition orders:0
      barnabas transaction abort billing-1
      barnabas transaction find-hanging
      barnabas transaction abort --topic orders --partition 0 --start-offset 42
    """


@transaction.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="May be repeated."
)
@click.option("--producer-id", "producer_ids", multiple=True, type=click.IntRange(0), help="May be repeated.")
@click.option("--min-duration", metavar="TIME", callback=duration_option, help="Open for longer: 90s, 5m, 1h.")
@click.option("--pattern", metavar="REGEX", help="Matches the whole transactional id.")
@server_options
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    min_duration: int | None,
    pattern: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List the transactional ids of all brokers.

    Examples:
      barnabas transaction list
      barnabas transaction list --state ongoing --min-duration 5m
      barnabas transaction list --pattern 'billing-.*' --json
    """
    from barnabas.cli import transaction_admin  # noqa: PLC0415 - keeps --help fast

    wanted = TransactionFilter(states, producer_ids, -1 if min_duration is None else min_duration, pattern)
    transaction_admin.list_transactions(wanted, bootstrap, as_json)


@transaction.command()
@click.argument("names", nargs=-1, metavar="[TRANSACTIONAL_ID]...")
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    metavar="TOPIC:N",
    callback=partition_option,
    help="Show the producers of this partition. May be repeated.",
)
@server_options
def describe(names: tuple[str, ...], partitions: list[TopicPartition], bootstrap: str, as_json: bool) -> None:
    """Show state, producer, age and partitions of transactional ids, or the producers of partitions.

    Examples:
      barnabas transaction describe billing-1
      barnabas transaction describe billing-1 billing-2 --json
      barnabas transaction describe --partition orders:0
    """
    if bool(names) == bool(partitions):
        raise click.UsageError("Give transactional ids, or --partition.")
    from barnabas.cli import transaction_admin  # noqa: PLC0415 - keeps --help fast

    if names:
        transaction_admin.describe(list(dict.fromkeys(names)), bootstrap, as_json)
    else:
        transaction_admin.describe_partitions(partitions, bootstrap, as_json)


@transaction.command()
@click.argument("name", required=False, metavar="[TRANSACTIONAL_ID]")
@click.option("--topic", "-t", metavar="NAME", help="With --partition and --start-offset.")
@click.option("--partition", "-p", type=click.IntRange(0), help="Of --topic.")
@click.option(
    "--start-offset", type=click.IntRange(0), help="Of the transaction, as find-hanging and describe show it."
)
@click.option("--force", is_flag=True, help="In one partition, even if the coordinator knows the transaction.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@server_options
def abort(
    name: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    force: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Abort an open transaction.

    Examples:
      barnabas transaction abort billing-1
      barnabas transaction abort --topic orders --partition 0 --start-offset 42 --yes

    By transactional id, the coordinator aborts the transaction in all its partitions, and the producer that opened it
    is fenced: it fails at its next request. By offset, an abort marker goes to one partition only. That is for hanging
    transactions, which no coordinator knows; where one does, it is refused without --force.
    """
    from barnabas.cli import transaction_admin  # noqa: PLC0415 - keeps --help fast

    places = (topic, partition, start_offset)
    if name is not None and places == (None, None, None) and not force:
        transaction_admin.abort(name, yes, bootstrap, as_json)
    elif name is None and topic is not None and partition is not None and start_offset is not None:
        place = TopicPartition(topic, partition)
        transaction_admin.abort_in_partition(place, start_offset, force, yes, bootstrap, as_json)
    else:
        raise click.UsageError("Give a transactional id; or --topic, --partition and --start-offset.")


@transaction.command("find-hanging")
@click.option("--topic", "-t", "topics", multiple=True, metavar="NAME", help="Only this one. May be repeated.")
@click.option("--broker", "broker_id", type=click.IntRange(0), help="Only partitions that it leads.")
@click.option(
    "--max-transaction-timeout",
    "timeout_minutes",
    type=click.FloatRange(0),
    default=DEFAULT_TIMEOUT_MINUTES,
    show_default=True,
    metavar="MINUTES",
    help="Only transactions older than this.",
)
@click.option("--groups", "with_groups", is_flag=True, help="Also the lag of groups in these partitions.")
@server_options
def find_hanging(**options: Any) -> None:
    """Find open transactions that no coordinator will end.

    Examples:
      barnabas transaction find-hanging
      barnabas transaction find-hanging --topic orders --groups
      barnabas transaction find-hanging --broker 2 --max-transaction-timeout 60 --json

    A hanging transaction is open in a partition, and its coordinator does not know of it: nothing will end it.
    Consumers with read_committed stop at its first offset. Abort it with `transaction abort --topic ... --partition ...
    --start-offset ...`. The age is counted from the producer's last write. Exits with 1 where there is any.
    """
    from barnabas.cli import transaction_hanging  # noqa: PLC0415 - keeps --help fast

    transaction_hanging.run(**options)
