"""``barnabas bench``: measures a broker under load from librdkafka."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import click

from barnabas.cli.bench_tools import Pace, Progress, Samples, Until, bench_topic, end_if_interrupted, rates, report
from barnabas.cli.bench_transactions import transactions
from barnabas.cli.interrupts import Interrupt, flush
from barnabas.cli.options import bootstrap_option, json_option
from barnabas.cli.suggestions import CommandGroup

F = TypeVar("F", bound=Callable[..., Any])

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP_SIZE = 500
"""Messages handed to librdkafka at a time; the first of each group is timed."""
DEFAULT_MESSAGES = 1_000_000
DEFAULT_LATENCY_RATE = 1000.0
FLUSH_S = 60.0
IDLE_S = 10.0
"""A consumer that sees nothing for so long has seen everything."""
_STAMP = struct.Struct(">d")


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure a broker under load.

    A topic of its own is made for each run and taken away again; --topic uses one that exists, --keep leaves it.

    Examples:
      barnabas bench produce --messages 1000000 --size 100
      barnabas bench consume --messages 1000000
      barnabas bench latency --rate 2000 --duration 10
      barnabas bench transactions --messages 100 --partitions 8
    """


bench.add_command(transactions)


def _shared_options(command: F) -> F:
    options = [
        click.option("--messages", "-n", type=click.IntRange(1), help="How many; 1,000,000 without --duration."),
        click.option("--duration", "-d", type=click.FloatRange(0.1), metavar="SECONDS", help="How long."),
        click.option("--size", "-s", type=click.IntRange(8), default=100, show_default=True, help="Bytes of one."),
        click.option("--batch-size", type=click.IntRange(1), default=65536, show_default=True, help="Bytes."),
        click.option("--linger-ms", type=click.FloatRange(0), help="Wait for a batch; 5, for latency 0."),
        click.option("--codec", "-z", type=click.Choice(CODECS), default="none", show_default=True),
        click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True),
        click.option("--partitions", "-p", type=click.IntRange(1), default=1, show_default=True, help="Of a new one."),
        click.option("--topic", "-t", help="Made where it is missing; a new one without."),
        click.option("--rate", type=click.FloatRange(0.001), help="Messages a second at most; latency: 1000."),
        click.option("--keep", is_flag=True, help="Leave the topic that was made."),
        bootstrap_option,
        json_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@bench.command()
@_shared_options
def produce(**options: Any) -> None:
    """Send as fast as it goes, or at --rate.

    Examples:
      barnabas bench produce --messages 1000000 --size 100 --acks all
      barnabas bench produce --duration 30 --rate 50000 --codec lz4 --json
    """
    options = {**options, "messages": _message_count(options)}
    with _bench_topic(options) as topic, Interrupt() as interrupt:
        result = _run_producer(topic, options, interrupt)
    report({"test": "produce", **result}, options["as_json"])
    end_if_interrupted(result, options["messages"], options["duration"])
    if result["failed"]:
        raise click.ClickException(f"{result['failed']} messages were not delivered: {result['error']}.")


@bench.command()
@_shared_options
def consume(**options: Any) -> None:
    """Read a topic from its beginning; a new one is filled first.

    Examples:
      barnabas bench consume --messages 1000000 --size 100
      barnabas bench consume --topic events --duration 10
    """
    with _bench_topic(options) as topic, Interrupt() as interrupt:
        first, last = _offsets(options["bootstrap"], topic)
        available = sum(last.values()) - sum(first.values())
        if not available:
            filling = {**options, "rate": None, "duration": None}
            filling["messages"] = _message_count(filling)
            available = _run_producer(topic, filling, interrupt)["messages"]
        wanted = min(available, options["messages"] or available)
        result = _run_consumer(topic, first, Until(wanted, options["duration"]), options["bootstrap"], interrupt)
    report({"test": "consume", **result}, options["as_json"])
    end_if_interrupted(result, wanted, options["duration"])


@bench.command()
@_shared_options
def latency(**options: Any) -> None:
    """Send at --rate and time each message until it is acknowledged and until it is read.

    Examples:
      barnabas bench latency
      barnabas bench latency --rate 2000 --duration 10 --acks 1 --json
    """
    rate = options["rate"] or DEFAULT_LATENCY_RATE
    if options["messages"] is None and options["duration"] is None:
        options["messages"] = int(rate * 5)
    options = {**options, "rate": rate, "linger_ms": options["linger_ms"] or 0}
    with _bench_topic(options) as topic, Interrupt() as interrupt:
        result = _run_latency(topic, options, interrupt)
    report({"test": "latency", **result}, options["as_json"])
    end_if_interrupted(result, options["messages"], options["duration"])


def _bench_topic(options: dict[str, Any]) -> AbstractContextManager[str]:
    return bench_topic(options["bootstrap"], options["topic"], options["partitions"], options["keep"])


def _message_count(options: dict[str, Any]) -> int | None:
    """None: as many as go within --duration."""
    if options["messages"] is None and options["duration"] is None:
        return DEFAULT_MESSAGES
    count: int | None = options["messages"]
    return count


class Delivery:
    """Counts what was delivered, and times the messages that carry a stamp of their own."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.error = ""
        self.samples = Samples()

    def count(self, error: Any, _message: Any) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1
            self.error = error.str()

    def timed(self) -> Callable[[Any, Any], None]:
        started = time.perf_counter()

        def on_delivery(error: Any, message: Any) -> None:
            self.samples.add(time.perf_counter() - started)
            self.count(error, message)

        return on_delivery


def _new_producer(options: dict[str, Any]) -> Any:
    from confluent_kafka import Producer  # noqa: PLC0415 - slow to import

    linger_ms = options["linger_ms"]
    return Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "client.id": "barnabas-bench",
            "acks": options["acks"],
            "compression.type": options["codec"],
            "batch.size": options["batch_size"],
            "linger.ms": 5 if linger_ms is None else linger_ms,
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "message.timeout.ms": int(FLUSH_S * 1000),
            "log_level": 0,
        }
    )


def _run_producer(topic: str, options: dict[str, Any], interrupt: Interrupt) -> dict[str, Any]:
    producer = _new_producer(options)
    delivery = Delivery()
    value = os.urandom(options["size"])

    def send(count: int) -> int:
        return _hand_over(producer, topic, value, min(count, GROUP_SIZE), delivery)

    seconds, undelivered = _drive(producer, options, send, interrupt)
    return {
        **rates(delivery.delivered, options["size"], seconds),
        "failed": delivery.failed + undelivered,
        "error": delivery.error or ("no answer in time" if undelivered else ""),
        "acknowledged": delivery.samples.summary_ms(),
        "interrupted": interrupt.seen,
    }


def _drive(
    producer: Any, options: dict[str, Any], send: Callable[[int], int], interrupt: Interrupt
) -> tuple[float, int]:
    """Calls ``send`` with how many may go now, until it is time. Seconds, and what was never answered for."""
    until, pace, progress = Until(options["messages"], options["duration"]), Pace(options["rate"]), Progress()
    sent = 0
    started = time.monotonic()
    while (left := until.left(sent)) > 0 and not interrupt.seen:
        allowed = pace.allowed(sent)
        if allowed <= 0:
            producer.poll(min(pace.wait_s(sent), 0.1))
            continue
        sent += send(min(left, allowed))
        progress.show(sent)
    undelivered = flush(producer, FLUSH_S, interrupt)
    progress.end()
    return time.monotonic() - started, undelivered


def _hand_over(producer: Any, topic: str, value: bytes, count: int, delivery: Delivery) -> int:
    """A timed message and the others of its group; fewer where the queue is full."""
    accepted = 0
    try:
        producer.produce(topic, value, on_delivery=delivery.timed())
        accepted = 1
        accepted += _hand_over_group(producer, topic, value, count - 1, delivery)
    except BufferError:
        producer.poll(0.05)
    producer.poll(0 if accepted == count else 0.05)
    return accepted


def _hand_over_group(producer: Any, topic: str, value: bytes, count: int, delivery: Delivery) -> int:
    if count > 0 and hasattr(producer, "produce_batch"):  # older versions of confluent-kafka have none
        return int(producer.produce_batch(topic, [{"value": value}] * count, on_delivery=delivery.count))
    for sent in range(count):
        try:
            producer.produce(topic, value, on_delivery=delivery.count)
        except BufferError:
            return sent
    return count


def _offsets(bootstrap: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """Where each partition begins and ends."""
    from barnabas.client.wire import Client, admin  # noqa: PLC0415 - keeps --help fast
    from barnabas.model.ids import TopicPartition  # noqa: PLC0415

    with Client(bootstrap) as client:
        partitions = [TopicPartition(topic, number) for number in client.topic(topic).partitions]
        first = admin.list_offsets(client, dict.fromkeys(partitions, admin.EARLIEST))
        last = admin.list_offsets(client, dict.fromkeys(partitions, admin.LATEST))
    firsts = {item.partition: found.offset for item, found in first.items()}
    return firsts, {item.partition: found.offset for item, found in last.items()}


def _new_consumer(topic: str, partitions: dict[int, int], bootstrap: str) -> Any:
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - slow to import

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "barnabas-bench",
            "group.id": "barnabas-bench",  # librdkafka insists; partitions are assigned by hand
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 1,
            "queued.max.messages.kbytes": 262_144,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, offset) for number, offset in partitions.items()])
    return consumer


def _run_consumer(
    topic: str, partitions: dict[int, int], until: Until, bootstrap: str, interrupt: Interrupt
) -> dict[str, Any]:
    """The rate excludes the first messages; the time to connect is reported separately."""
    consumer = _new_consumer(topic, partitions, bootstrap)
    progress = Progress()
    count = size = first_count = 0
    started = first = last = time.monotonic()
    try:
        while (left := until.left(count)) > 0 and time.monotonic() - last < IDLE_S and not interrupt.seen:
            found = [message for message in consumer.consume(min(left, 10_000), 0.5) if message.error() is None]
            if not found:
                continue
            last = time.monotonic()
            if not count:
                first, first_count = last, len(found)
            count += len(found)
            size += sum(map(len, found))
            progress.show(count)
    finally:
        progress.end()
        consumer.close()
    if count == first_count:
        first, first_count = started, 0
    measured = rates(count - first_count, size // count if count else 0, last - first)
    after_ms = round((first - started) * 1000, 3)
    return {**measured, "messages": count, "first_messages": {"after": after_ms}, "interrupted": interrupt.seen}


class Receiver(threading.Thread):
    """Reads a topic's end and times each message from the stamp in it."""

    def __init__(self, topic: str, partitions: dict[int, int], bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._consumer = _new_consumer(topic, partitions, bootstrap)
        self.samples = Samples()
        self.count = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            value = message.value()
            if value is not None and len(value) >= _STAMP.size:
                self.samples.add(time.perf_counter() - _STAMP.unpack_from(value)[0])
                self.count += 1
        self._consumer.close()


def _run_latency(topic: str, options: dict[str, Any], interrupt: Interrupt) -> dict[str, Any]:
    """Stamps are of a clock that only this process has: sender and receiver share it."""
    receiver = Receiver(topic, _offsets(options["bootstrap"], topic)[1], options["bootstrap"])
    receiver.start()
    producer = _new_producer(options)
    producer.list_topics(topic, timeout=10)
    delivery = Delivery()
    padding = bytes(options["size"] - _STAMP.size)

    def send(_count: int) -> int:
        value = _STAMP.pack(time.perf_counter()) + padding
        producer.produce(topic, value, on_delivery=delivery.timed())
        producer.poll(0)
        return 1

    seconds, undelivered = _drive(producer, options, send, interrupt)
    _wait_for(receiver, delivery.delivered, interrupt)
    return {
        **rates(delivery.delivered, options["size"], seconds),
        "failed": delivery.failed + undelivered,
        "received": receiver.count,
        "acknowledged": delivery.samples.summary_ms(),
        "end_to_end": receiver.samples.summary_ms(),
        "interrupted": interrupt.seen,
    }


def _wait_for(receiver: Receiver, count: int, interrupt: Interrupt) -> None:
    deadline = time.monotonic() + IDLE_S
    while receiver.count < count and not interrupt.has_passed(deadline):
        time.sleep(0.01)
    receiver.stopping.set()
    receiver.join(5)
