"""``barnabas bench transactions``: transactions a second, and how long their commits take."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from barnabas.cli.bench_tools import Progress, Samples, Until, bench_topic, end_if_interrupted, rates, report
from barnabas.cli.interrupts import Interrupt
from barnabas.cli.options import server_options
from barnabas.cli.suggestions import Command
from barnabas.cli.transactional_producer import TransactionalProducer

DEFAULT_TRANSACTIONS = 1000
TIMEOUT_S = 60.0
FLUSH_S = 60.0


@click.command(cls=Command)
@click.option("--transactions", "-n", "count", type=click.IntRange(1), help="How many; 1,000 without --duration.")
@click.option("--duration", "-d", type=click.FloatRange(0.1), metavar="SECONDS", help="How long.")
@click.option("--messages", "-m", type=click.IntRange(1), default=100, show_default=True, help="In each transaction.")
@click.option("--size", "-s", type=click.IntRange(1), default=100, show_default=True, help="Bytes of a message.")
@click.option("--partitions", "-p", type=click.IntRange(1), default=1, show_default=True, help="Of a new topic.")
@click.option("--topic", "-t", help="Made where it is missing; a new one without.")
@click.option(
    "--open-ids", type=click.IntRange(0), default=0, metavar="N", help="Open so many transactional ids first."
)
@click.option("--idle", type=click.FloatRange(0), metavar="SECONDS", help="Then wait; 10 with --open-ids.")
@click.option("--keep", is_flag=True, help="Leave the topic that was made.")
@server_options
def transactions(count: int | None, duration: float | None, as_json: bool, **options: Any) -> None:
    """Commit transactions, one after the other.

    Examples:
      barnabas bench transactions
      barnabas bench transactions --messages 100 --size 100 --partitions 8 --duration 10
      barnabas bench transactions --open-ids 10000 --idle 30 --json

    One producer, one transaction after the other: its messages are sent and acknowledged, then the commit is timed. The
    transactional ids stay with the broker until they expire (transactional.id.expiration.ms).
    """
    if count is None and duration is None:
        count = DEFAULT_TRANSACTIONS
    name = f"barnabas-bench-{os.urandom(4).hex()}"
    with bench_topic(options["bootstrap"], options["topic"], options["partitions"], options["keep"]) as topic:
        opened = _open_ids(name, options) if options["open_ids"] else {}
        with Interrupt() as interrupt:
            result = _run(name, topic, Until(count, duration), options, interrupt)
    result = {"test": "transactions", **opened, **result}
    report(result, as_json)
    wanted = None if count is None else count * options["messages"]
    end_if_interrupted(result, wanted, duration)


def _open_ids(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Opens transactional ids that nothing is written with, and waits, for a look at what they cost the broker."""
    from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast
    from barnabas.client.wire.transactional import init_producer  # noqa: PLC0415

    started = time.monotonic()
    with Client(options["bootstrap"]) as client:
        for number in range(options["open_ids"]):
            init_producer(client, f"{name}-{number}", int(TIMEOUT_S * 1000))
    seconds = time.monotonic() - started
    idle_s = 10.0 if options["idle"] is None else options["idle"]
    click.echo(f"Opened {options['open_ids']:,} transactional ids in {seconds:.1f} s; idle for {idle_s:g} s.", err=True)
    time.sleep(idle_s)
    return {"open_ids": options["open_ids"], "open_ids_per_second": round(options["open_ids"] / seconds, 1)}


def _run(name: str, topic: str, until: Until, options: dict[str, Any], interrupt: Interrupt) -> dict[str, Any]:
    settings = {"bootstrap.servers": options["bootstrap"], "client.id": "barnabas-bench"}
    producer = TransactionalProducer(settings, name, timeout_s=TIMEOUT_S, transaction_s=TIMEOUT_S)
    producer.init()
    partitions = len(producer.inner.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
    values = [os.urandom(options["size"])] * options["messages"]
    _transaction(producer, topic, partitions, values)  # connects, and makes the coordinator load what it needs
    whole, commits, progress = Samples(), Samples(), Progress("transactions")
    count = 0
    started = time.monotonic()
    while until.left(count) > 0 and not interrupt.seen and not producer.interrupted:
        begun = time.perf_counter()
        commits.add(_transaction(producer, topic, partitions, values))
        whole.add(time.perf_counter() - begun)
        count += 1
        progress.show(count)
    progress.end()
    seconds = time.monotonic() - started
    return {
        "transactions": count,
        "transactions_per_second": round(count / seconds, 1) if seconds else 0.0,
        **rates(count * options["messages"], options["size"], seconds),
        "transaction": whole.summary_ms(),
        "commit": commits.summary_ms(),
        "interrupted": interrupt.seen or producer.interrupted,
    }


def _transaction(producer: TransactionalProducer, topic: str, partitions: int, values: list[bytes]) -> float:
    """How long the commit took, in seconds. Raises KafkaException where a message was not delivered."""
    producer.begin()
    for at, value in enumerate(values):
        while True:
            try:
                producer.inner.produce(topic, value, partition=at % partitions)
                break
            except BufferError:
                producer.inner.poll(0.05)
    producer.inner.flush(FLUSH_S)
    started = time.perf_counter()
    producer.commit()
    return time.perf_counter() - started
