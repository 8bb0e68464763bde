"""Lists, describes and aborts transactions for ``barnabas transaction``."""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas.app.program import program
from barnabas.cli.output import age_text, counted, print_described, print_json, print_table, time_text
from barnabas.cli.suggestions import did_you_mean, naming_topics
from barnabas.client.wire import BrokerError, Client, transactions
from barnabas.client.wire.transactional import init_producer
from barnabas.client.wire.transactions import ListedTransaction, ProducerInfo, TransactionFilter, TransactionInfo
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

ABORTABLE_STATES = ("Ongoing", "PrepareEpochFence")
"""In the others the outcome is decided already."""


def list_transactions(wanted: TransactionFilter, bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        found = _listed(client, wanted)
    if as_json:
        print_json([each._asdict() for each in found])
    elif found:
        print_table(["transactional id", "coordinator", "producer id", "state"], found)
    elif wanted == transactions.NO_FILTER:
        click.echo("There are no transactional ids.", err=True)
    else:
        click.echo("No transactional id matches.", err=True)


def _listed(client: Client, wanted: TransactionFilter) -> list[ListedTransaction]:
    try:
        return transactions.list_transactions(client, wanted)
    except BrokerError as error:
        if error.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise
        raise click.ClickException(
            f"--pattern is {wanted.pattern!r}: the broker takes it for no regular expression."
        ) from error


def describe(names: list[str], bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        shown = [_described(existing(client, name)) for name in names]
    print_described(shown, as_json, _print_transaction)


def existing(client: Client, name: str) -> TransactionInfo:
    """Raises ClickException where there is none."""
    found = transactions.find_transaction(client, name)
    if found is None:
        known = [each.transactional_id for each in transactions.list_transactions(client)]
        hint = did_you_mean(name, known) or f" List them with: {program()} transaction list"
        raise click.ClickException(f"There is no transactional id {name}.{hint}")
    return found


def _described(info: TransactionInfo) -> dict[str, Any]:
    started = info.start_time_ms if info.start_time_ms >= 0 and info.state in transactions.OPEN_STATES else None
    return {
        **info.producer._asdict(),
        "state": info.state,
        "coordinator": info.coordinator,
        "timeout_ms": info.timeout_ms,
        "start_time": started,
        "open_seconds": None if started is None else round(max(time.time() - started / 1000, 0.0), 3),
        "partitions": [place._asdict() for place in info.partitions],
    }


def _print_transaction(item: dict[str, Any]) -> None:
    click.echo(f"Transactional id {item['transactional_id']}  state {item['state']}  coordinator {item['coordinator']}")
    timeout = age_text(item["timeout_ms"] / 1000)
    click.echo(f"Producer id {item['producer_id']}  epoch {item['producer_epoch']}  timeout {timeout}")
    if item["start_time"] is None:
        click.echo("No transaction is open.")
        return
    click.echo(f"Open for {age_text(item['open_seconds'])}, since {time_text(item['start_time'])}")
    if item["partitions"]:
        print_table(["topic", "partition"], [list(place.values()) for place in item["partitions"]])
    else:
        click.echo("Nothing was written yet.")


def describe_partitions(places: list[TopicPartition], bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        found = producers_of(client, places)
        names = transactions.names_of_producers(
            client, {each.producer_id for known in found.values() for each in known}
        )
    shown = [
        {
            **place._asdict(),
            "producers": [_producer_row(each, names.get(each.producer_id)) for each in sorted(known)],
        }
        for place, known in found.items()
    ]
    print_described(shown, as_json, _print_producers)


def producers_of(client: Client, places: list[TopicPartition]) -> dict[TopicPartition, tuple[ProducerInfo, ...]]:
    """Raises ClickException for a topic or a partition that is not there."""
    for place in places:
        with naming_topics(client, place.topic):
            count = len(client.topic(place.topic).partitions)
        if place.partition >= count:
            raise click.ClickException(
                f"Topic {place.topic} has no partition {place.partition}, only 0 to {count - 1}."
            )
    return transactions.describe_producers(client, places)


def _producer_row(producer: ProducerInfo, name: str | None) -> dict[str, Any]:
    """None for what a broker spells -1."""
    numbers = {key: None if value < 0 else value for key, value in producer._asdict().items()}
    return {**numbers, "transactional_id": name}


def _print_producers(item: dict[str, Any]) -> None:
    count = counted(len(item["producers"]), "producer")
    click.echo(f"Partition {item['topic']}-{item['partition']}  {count}")
    columns = ["producer id", "epoch", "last sequence", "last write", "coordinator epoch", "open since offset"]
    cells = [list(row.values()) for row in item["producers"]]
    rows = [[*row[:3], None if row[3] is None else time_text(row[3]), *row[4:]] for row in cells]
    if rows:
        print_table([*columns, "transactional id"], rows)


def abort(name: str, yes: bool, bootstrap: str, as_json: bool) -> None:
    with Client(bootstrap) as client:
        info = existing(client, name)
        if info.state not in ABORTABLE_STATES:
            raise click.ClickException(f"Transactional id {name} has nothing to abort: its state is {info.state}.")
        where = ", ".join(map(str, info.partitions)) or "no partition yet"
        if not yes:
            click.confirm(f"Abort the transaction of {name} in {where}, and fence its producer?", abort=True, err=True)
        init_producer(client, name, info.timeout_ms)
    if as_json:
        print_json({"transactional_id": name, "aborted": True, "partitions": _described(info)["partitions"]})
    else:
        click.echo(f"Aborted the transaction of {name} in {where}.")


def abort_in_partition(
    place: TopicPartition, start_offset: int, force: bool, yes: bool, bootstrap: str, as_json: bool
) -> None:
    with Client(bootstrap) as client:
        producer = _producer_at(producers_of(client, [place])[place], place, start_offset)
        if not force:
            _refuse_known(client, place, producer)
        about = f"producer {producer.producer_id}, epoch {producer.producer_epoch}"
        if not yes:
            question = f"Abort the transaction in {place} from offset {start_offset} ({about})?"
            click.confirm(question, abort=True, err=True)
        transactions.abort_in_partition(client, place, producer)
    if as_json:
        numbers = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        print_json({**place._asdict(), "start_offset": start_offset, **numbers, "aborted": True})
    else:
        click.echo(f"Aborted the transaction in {place} from offset {start_offset} ({about}).")


def _producer_at(known: tuple[ProducerInfo, ...], place: TopicPartition, start_offset: int) -> ProducerInfo:
    is_open = [each for each in known if each.transaction_start_offset >= 0]
    found = [each for each in is_open if each.transaction_start_offset == start_offset]
    if found:
        return found[0]
    offsets = ", ".join(str(each.transaction_start_offset) for each in sorted(is_open))
    others = f"those that are open begin at {offsets}" if is_open else "none is open"
    raise click.ClickException(f"No transaction in {place} begins at offset {start_offset}; {others}.")


def _refuse_known(client: Client, place: TopicPartition, producer: ProducerInfo) -> None:
    """Its coordinator may yet commit it in other partitions."""
    name = transactions.names_of_producers(client, [producer.producer_id]).get(producer.producer_id)
    if name is None or not transactions.is_known(existing(client, name), place, producer):
        return
    raise click.ClickException(
        f"This transaction does not hang: its coordinator knows it as that of {name}. Abort all of it with: "
        f"{program()} transaction abort {name}"
    )
