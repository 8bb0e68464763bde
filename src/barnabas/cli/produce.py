"""``barnabas produce``: sends lines of input as messages."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import click

from barnabas.cli.interrupts import Deferred, Interrupt, flush
from barnabas.cli.options import parse_pair_list, server_options, time_option
from barnabas.cli.output import print_json
from barnabas.cli.produce_transactions import Transactions, check_options, reason_of
from barnabas.cli.suggestions import Command, naming_topics
from barnabas.cli.transactional_producer import TransactionalProducer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINGER_MS = 5
TRANSACTION_TIMEOUT_S = 60.0
"""As in Kafka's producer."""
POLL_EVERY = 100
"""Messages between two looks at what was delivered; the first failure ends the run."""
POLL_EVERY_S = 0.2
"""The same for lines that come slowly."""


class Line(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    timestamp: int | None = None


class Shape(NamedTuple):
    """What the options say of every line."""

    key_separator: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None
    json_input: bool
    keep_partitions: bool


class Tally:
    """What became of the messages."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.errors: dict[str, int] = {}
        self.partitions: dict[int, int] = {}

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            text = error.str()
            self.errors[text] = self.errors.get(text, 0) + 1
            return
        self.delivered += 1
        partition = message.partition()
        self.partitions[partition] = self.partitions.get(partition, 0) + 1

    def reason(self) -> str:
        return max(self.errors, key=lambda text: self.errors[text]) if self.errors else "no answer in time"


@click.command(cls=Command)
@click.argument("topic")
@click.option("--message", "-m", "texts", multiple=True, help="Send this, and do not read lines. May be repeated.")
@click.option("--file", "-f", "source", type=click.File("rb"), help="Read lines from a file; - is standard input.")
@click.option("--key-separator", "-K", metavar="TEXT", help="What stands between key and value; \\t is a tab.")
@click.option("--header", "-H", "headers", multiple=True, metavar="KEY=VALUE", callback=parse_pair_list, help="To all.")
@click.option("--partition", "-p", type=click.IntRange(0), help="To this one; by the key's hash without.")
@click.option("--codec", "-z", type=click.Choice(CODECS), default="none", show_default=True, help="Compression.")
@click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True, help="Replicas that acknowledge."
)
@click.option("--timestamp", metavar="TIME", callback=time_option, help="Milliseconds, ISO 8601, or -1h ago.")
@click.option("--json-input", is_flag=True, help="Lines are objects with key, value, headers, timestamp.")
@click.option("--keep-partitions", is_flag=True, help="With --json-input: to the partition that the line names.")
@click.option("--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Seconds for delivery.")
@click.option("--transactional-id", metavar="ID", help="Send in a transaction.")
@click.option("--transaction-messages", type=click.IntRange(1), metavar="N", help="So many in each; all without.")
@click.option(
    "--transaction-timeout",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="The coordinator aborts then; 60 without.",
)
@server_options
def produce(topic: str, texts: tuple[str, ...], source: BinaryIO | None, as_json: bool, **options: Any) -> None:
    """Send lines as messages, one for each line of standard input.

    With --json-input a line is what consume --json prints; bytes that are no text are in value_base64 and key_base64.

    Examples:
      barnabas produce hello --message 'first message'
      printf 'k1:one\\nk2:two\\n' | barnabas produce hello --key-separator :
      barnabas produce hello --file events.log --codec zstd --header source=web
      barnabas consume hello --json | barnabas produce copy --json-input
      barnabas produce hello --file events.log --transactional-id loader-1

    With --transactional-id, all messages of the run are one transaction: consumers with read_committed see all of them
    when it ends, or none after an error or Ctrl-C. --transaction-messages N commits after every N. A second run with
    the same id fences the first.
    """
    check_options(options)
    shape = _shape(options)
    lines = _parse([text.encode() for text in texts] if texts else _read(source), shape)
    if options["transactional_id"] is None:
        _produce(topic, lines, options, as_json)
    else:
        _produce_in_transactions(topic, lines, options, as_json)


def _produce(topic: str, lines: Iterator[Line], options: dict[str, Any], as_json: bool) -> None:
    tally = Tally()
    started = time.monotonic()
    interrupted = False
    producer = _producer(topic, options)
    try:
        _send_all(producer, topic, lines, tally)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        with Interrupt() as interrupt:
            left = flush(producer, options["timeout"], interrupt)
    _summarize(topic, tally, left, time.monotonic() - started, as_json)
    if tally.failed or left:
        raise click.ClickException(f"{tally.failed + left} messages were not delivered: {tally.reason()}.")
    if interrupted:
        raise click.exceptions.Exit(130)


def _produce_in_transactions(topic: str, lines: Iterator[Line], options: dict[str, Any], as_json: bool) -> None:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

    tally = Tally()
    started = time.monotonic()
    producer = _transactional_producer(topic, options)
    transactions = Transactions(producer, options["transaction_messages"])
    problem: str | None = None
    interrupted = False
    try:
        producer.init()
        _send_all(producer.inner, topic, transactions.grouped(lines), tally)
        if tally.failed:
            problem = f"{tally.failed} messages were not delivered: {tally.reason()}."
        else:
            transactions.commit()
    except KeyboardInterrupt:
        interrupted, problem = True, "Interrupted."
    except click.ClickException as error:
        problem = error.message
    except KafkaException as error:
        problem = f"The transaction failed: {reason_of(error)}."
    outcome = transactions.abort() if problem else ""
    _summarize(topic, tally, 0, time.monotonic() - started, as_json, transactions)
    if interrupted:
        click.echo(f"{problem} {outcome}", err=True)
        raise click.exceptions.Exit(130)
    if problem:
        raise click.ClickException(f"{problem} {outcome}")


def _shape(options: dict[str, Any]) -> Shape:
    separator = options["key_separator"]
    if separator is not None and options["json_input"]:
        raise click.UsageError("--key-separator and --json-input exclude each other.")
    if separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    return Shape(
        None if separator is None else separator.replace("\\t", "\t").encode(),
        [(key, value.encode()) for key, value in options["headers"]],
        options["partition"],
        options["timestamp"],
        options["json_input"],
        options["keep_partitions"],
    )


def _read(source: BinaryIO | None) -> Iterable[bytes]:
    if source is None and sys.stdin.isatty():
        click.echo("A message a line; Ctrl-D ends.", err=True)
    return source or sys.stdin.buffer


def _parse(lines: Iterable[bytes], shape: Shape) -> Iterator[Line]:
    for number, raw in enumerate(lines, 1):
        line = raw[:-1] if raw.endswith(b"\n") else raw
        if shape.json_input:
            if line.strip():
                yield _json_line(line, number, shape)
            continue
        key: bytes | None = None
        value = line
        if shape.key_separator is not None:
            key, found, value = line.partition(shape.key_separator)
            if not found:
                raise click.ClickException(f"Line {number} has no {shape.key_separator.decode()!r} after a key.")
        yield Line(key, value, shape.headers, shape.partition, shape.timestamp)


def _json_line(line: bytes, number: int, shape: Shape) -> Line:
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict):
            raise ValueError("not an object")
        partition, timestamp = entry.get("partition"), entry.get("timestamp")
        if not all(isinstance(item, (int, type(None))) for item in (partition, timestamp)):
            raise ValueError("partition and timestamp are numbers")
        return Line(
            _json_field(entry, "key"),
            _json_field(entry, "value"),
            shape.headers + _json_headers(entry.get("headers") or []),
            partition if shape.partition is None and shape.keep_partitions else shape.partition,
            timestamp if shape.timestamp is None else shape.timestamp,
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise click.ClickException(f"Line {number} is no message: {error}.") from error


def _json_field(entry: dict[str, Any], name: str) -> bytes | None:
    """Text as it is, anything else but null as JSON: a message may well be an object."""
    encoded = entry.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = entry.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _json_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """``{k: v}``, or a list of ``{"key": k, "value": v}`` where keys come more than once."""
    if isinstance(headers, dict):
        return [(key, _json_field({"value": value}, "value")) for key, value in headers.items()]
    return [(str(item["key"]), _json_field(item, "value")) for item in headers]


def _producer(topic: str, options: dict[str, Any]) -> Any:
    from confluent_kafka import Producer  # noqa: PLC0415 - slow to import

    _check_topic(topic, options)
    settings = {"message.timeout.ms": int(options["timeout"] * 1000), "log_level": 0}
    return Producer({**_settings(options), **settings})


def _transactional_producer(topic: str, options: dict[str, Any]) -> TransactionalProducer:
    _check_topic(topic, options)
    return TransactionalProducer(
        _settings(options),
        options["transactional_id"],
        timeout_s=options["timeout"],
        transaction_s=options["transaction_timeout"] or TRANSACTION_TIMEOUT_S,
    )


def _check_topic(topic: str, options: dict[str, Any]) -> None:
    """librdkafka waits minutes for a broker that is not there, so that one is asked for the topic first."""
    from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast

    with Client(options["bootstrap"]) as client, naming_topics(client, topic):
        known = client.topic(topic, auto_create=True)
        if options["partition"] is not None and options["partition"] not in known.partitions:
            raise click.ClickException(f"Topic {topic} has no partition {options['partition']}.")


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": options["bootstrap"],
        "client.id": "barnabas",
        "acks": options["acks"],
        "compression.type": options["codec"],
        "linger.ms": LINGER_MS,
        "partitioner": "murmur2_random",  # as Kafka's own client does it: a key goes where others put it
    }


def _send_all(producer: Any, topic: str, lines: Iterable[Line], tally: Tally) -> None:
    looked = time.monotonic()
    for count, line in enumerate(lines, 1):
        extra = {} if line.partition is None else {"partition": line.partition}
        if line.timestamp is not None:
            extra["timestamp"] = line.timestamp
        while True:
            try:
                producer.produce(
                    topic, line.value, line.key, headers=line.headers, on_delivery=tally.on_delivery, **extra
                )
                break
            except BufferError:
                _poll(producer, 0.1)
            except Exception as error:
                raise click.ClickException(f"Message {count} was refused: {reason_of(error)}.") from error
        if count % POLL_EVERY == 0 or time.monotonic() - looked > POLL_EVERY_S:
            _poll(producer, 0)
            looked = time.monotonic()
        if tally.failed:
            return


def _poll(producer: Any, seconds: float) -> None:
    with Deferred():
        producer.poll(seconds)


def _summarize(
    topic: str, tally: Tally, left: int, seconds: float, as_json: bool, transactions: Transactions | None = None
) -> None:
    rate = tally.delivered / seconds if seconds > 0 else 0.0
    if as_json:
        shown = {"topic": topic, "delivered": tally.delivered, "failed": tally.failed + left}
        shown |= transactions.as_json() if transactions else {}
        partitions = {str(key): count for key, count in sorted(tally.partitions.items())}
        print_json({**shown, "partitions": partitions, "seconds": round(seconds, 6), "rate": round(rate, 1)})
        return
    several = "" if tally.delivered == 1 else "s"
    where = f", partition {next(iter(tally.partitions))}" if len(tally.partitions) == 1 else ""
    summary = f"Sent {tally.delivered} message{several} to {topic}{where} in {seconds:.2f} s ({rate:,.0f}/s)"
    summary += transactions.summary() if transactions else ""
    click.echo(summary + (f"; {tally.failed + left} failed" if tally.failed or left else ""), err=True)
