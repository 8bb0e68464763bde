"""What a user may say with ``option``: the names, what they take, and which go together.

The names, meanings and precedence are those of Spark's own Kafka source and sink, so that a query moves over by its
format's name alone. Names do not depend on case. An unknown one is refused, with the one that was probably meant: a
mistyped ``startingOffsets`` would otherwise start the query at the wrong place without a word.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from barnabas.model.ids import TopicPartition
from barnabas.spark import client_settings
from barnabas.spark.client_settings import GivenOptions, SparkOptionError, connect, nearest
from barnabas.spark.exactly_once.options import DELIVERY_NAMES, DeliveryOptions, parse_delivery

__all__ = ["SinkOptions", "SourceOptions", "SparkOptionError", "connect", "parse_sink", "parse_source"]

EARLIEST = -2
LATEST = -1
"""As offsets in JSON, and as timestamps in ListOffsets: Kafka has the same numbers for both."""

DEFAULT_GROUP_PREFIX = "barnabas-spark"
DEFAULT_POLL_TIMEOUT_MS = 180_000
"""Longer than Spark's 120 s: a broker that is restarted with its logs to recover is worth waiting for."""
DEFAULT_BATCH_BYTES = 1_000_000
"""Of the sink. With its header a batch stays below Kafka's message.max.bytes of 1 MiB + 12."""

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
RATE_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

SOURCE_NAMES = (
    *SUBSCRIPTIONS,
    *STARTS,
    "startingOffsetsByTimestampStrategy",
    *ENDS,
    *RATE_LIMITS,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "publishProgress",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
SINK_NAMES = ("topic", "includeHeaders", "includeTimestamp", *DELIVERY_NAMES)

OF_SPARK = (
    "checkpointlocation",
    "collation",
    "comment",
    "external",
    "is_managed_location",
    "location",
    "outputmode",
    "owner",
    "provider",
    "queryname",
    "table_type",
)
"""What Spark adds by itself: for streams, and for tables of its catalogue."""

_log = logging.getLogger("barnabas.spark")


class Subscription(NamedTuple):
    """Which partitions are read. One of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern}"
        if self.partitions:
            return f"assign {', '.join(map(str, self.partitions))}"
        return f"subscribe {','.join(self.topics)}"


class Everywhere(NamedTuple):
    """The same place in all partitions: EARLIEST or LATEST."""

    place: int


class AtOffsets(NamedTuple):
    option: str
    offsets: dict[TopicPartition, int]


class AtTimestamps(NamedTuple):
    option: str
    timestamps: dict[TopicPartition, int] | int
    """Milliseconds; one number stands for all partitions."""


Bound: TypeAlias = Everywhere | AtOffsets | AtTimestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    subscription: Subscription
    kafka: dict[str, str]
    """By Kafka's names, without the prefix."""
    starting: Bound
    ending: Bound
    latest_where_no_match: bool
    """What becomes of a starting timestamp that no record has reached: an error unless this is set."""
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str | None
    group_id_prefix: str
    publish_progress: bool
    offset_retries: int
    offset_retry_interval_s: float
    poll_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    bootstrap_servers: str
    topic: str | None
    include_headers: bool
    compression: str | None
    include_timestamp: bool
    """Whether a column ``timestamp`` becomes the records' time; Spark's own sink does not know it."""
    max_batch_bytes: int
    acks: int
    client: dict[str, str]
    """The other settings of Kafka's, by Kafka's names."""
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)

    @property
    def kafka(self) -> dict[str, str]:
        """What ``connect`` takes."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.client}


def parse_source(options: Mapping[str, str], *, streaming: bool, has_rate_limits: bool = True) -> SourceOptions:
    """Raises SparkOptionError. ``has_rate_limits``: whether the running Spark can limit a micro-batch (4.2)."""
    given = _given(options, SOURCE_NAMES)
    kafka = client_settings.without_prefix(options)
    client_settings.check(kafka)
    if streaming:
        _check_for_stream(given, has_rate_limits)
    else:
        _warn_for_batch(given)
    starting = _bound(given, STARTS, Everywhere(LATEST if streaming else EARLIEST))
    ending = _bound(given, ENDS, Everywhere(LATEST))
    if not streaming:
        _check_bounds(starting, ending)
    _warn_of_group(kafka, given)
    return SourceOptions(
        subscription=_subscription(given),
        kafka=kafka,
        starting=starting,
        ending=ending,
        latest_where_no_match=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", None),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger", None),
        max_trigger_delay_s=given.duration_s("maxTriggerDelay", 15 * 60),
        min_partitions=given.number("minPartitions", None),
        max_records_per_partition=given.number("maxRecordsPerPartition", None),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        group_id=kafka.get("group.id"),
        group_id_prefix=given.text("groupIdPrefix") or DEFAULT_GROUP_PREFIX,
        publish_progress=given.flag("publishProgress", True),
        offset_retries=given.number("fetchOffset.numRetries", 3, smallest=0),
        offset_retry_interval_s=given.number("fetchOffset.retryIntervalMs", 1000, smallest=0) / 1000,
        poll_timeout_s=given.number("kafkaConsumer.pollTimeoutMs", DEFAULT_POLL_TIMEOUT_MS) / 1000,
    )


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Raises SparkOptionError."""
    given = _given(options, SINK_NAMES)
    kafka = client_settings.without_prefix(options)
    client_settings.check(kafka)
    acks = kafka.pop("acks", "all").strip().lower()
    if acks not in ("all", "-1", "0", "1"):
        raise SparkOptionError(f"kafka.acks is {acks!r}: all, 1 or 0 is right")
    most = client_settings.whole_number(kafka, "max.request.size", DEFAULT_BATCH_BYTES, smallest=1024)
    batch_bytes = client_settings.whole_number(kafka, "batch.size", most, smallest=0)
    topic = (given.text("topic") or "").strip()
    return SinkOptions(
        bootstrap_servers=kafka.pop("bootstrap.servers"),
        topic=topic or None,
        include_headers=given.flag("includeHeaders", False),
        compression=_compression(kafka.pop("compression.type", "none")),
        include_timestamp=given.flag("includeTimestamp", False),
        max_batch_bytes=max(1024, min(batch_bytes, most)),
        acks=-1 if acks == "all" else int(acks),
        client=kafka,
        delivery=parse_delivery(given, kafka, acks),
    )


def _compression(value: str) -> str | None:
    name = value.strip().lower()
    if name not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise SparkOptionError(f"kafka.compression.type is {value!r}: none, gzip, snappy, lz4 or zstd is right")
    return None if name == "none" else name


def _given(options: Mapping[str, str], names: tuple[str, ...]) -> GivenOptions:
    return GivenOptions(options, names, OF_SPARK, (client_settings.PREFIX, "option."), _unknown)


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if name.lower() == "path":
        return "path is no option here: topics are named with subscribe, subscribePattern, assign or topic"
    if name.lower() in client_settings.HONOURED:
        return f"{name} is no option: kafka.{name.lower()}?"
    near = nearest(name, names)
    return f"{name} is no option: " + (
        f"{near}?" if near else f"known are {', '.join(names)}, and kafka.* for the client"
    )


def _check_for_stream(given: GivenOptions, has_rate_limits: bool) -> None:
    for name in ENDS:
        if name in given:
            raise SparkOptionError(f"{name} is for batch queries: a stream has no end")
    for name in RATE_LIMITS:
        if name in given and not has_rate_limits:
            raise SparkOptionError(f"{name} needs Spark 4.2 or later: this Spark lets no Python source limit a batch")
    least, most = given.number("minOffsetsPerTrigger", None), given.number("maxOffsetsPerTrigger", None)
    if least is not None and most is not None and least > most:
        raise SparkOptionError(f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}")


def _warn_for_batch(given: GivenOptions) -> None:
    for name in RATE_LIMITS:
        if name in given:
            _log.warning("%s has no effect in a batch query", name)


def _warn_of_group(kafka: Mapping[str, str], given: GivenOptions) -> None:
    if "group.id" in kafka and "groupIdPrefix" in given:
        _log.warning("groupIdPrefix has no effect: kafka.group.id is set")


# Which partitions


def _subscription(given: GivenOptions) -> Subscription:
    named = [name for name in SUBSCRIPTIONS if name in given]
    if len(named) != 1:
        what = f"{' and '.join(named)} are given" if named else "none of them is given"
        raise SparkOptionError(f"exactly one of {', '.join(SUBSCRIPTIONS)} names what is read: {what}")
    value = given.text(named[0]) or ""
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not topics:
            raise SparkOptionError(f"subscribe is {value!r}: names of topics with commas between them are right")
        return Subscription(topics=topics)
    if named[0] == "subscribePattern":
        return Subscription(pattern=_pattern(value.strip()))
    return Subscription(partitions=_assigned(value))


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise SparkOptionError(f"subscribePattern is {value!r}: {error}") from None
    if not value:
        raise SparkOptionError("subscribePattern is empty: a regular expression such as orders.* is right")
    return value


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    wanted = 'assign is {value!r}: partitions by topic are right, as in {{"orders":[0,1]}}'
    found = _json(value, wanted.format(value=value))
    partitions: set[TopicPartition] = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(map(_is_number, numbers)):
            raise SparkOptionError(wanted.format(value=value))
        partitions.update(TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise SparkOptionError(wanted.format(value=value))
    return tuple(sorted(partitions))


# Where reading starts and ends


def _bound(given: GivenOptions, names: tuple[str, str, str], default: Bound) -> Bound:
    """One timestamp for all goes before timestamps by partition, and those before offsets."""
    for_all, by_partition, offsets = names
    if (text := given.text(for_all)) is not None:
        if not re.fullmatch(r"\d+", text.strip()):
            raise SparkOptionError(f"{for_all} is {text!r}: milliseconds since 1970 are right")
        return AtTimestamps(for_all, int(text))
    if (text := given.text(by_partition)) is not None:
        return AtTimestamps(by_partition, _numbers(by_partition, text, smallest=0))
    if (text := given.text(offsets)) is None:
        return default
    if text.strip().lower() in ("earliest", "latest"):
        return Everywhere(EARLIEST if text.strip().lower() == "earliest" else LATEST)
    return AtOffsets(offsets, _numbers(offsets, text, smallest=EARLIEST))


def _numbers(name: str, text: str, *, smallest: int) -> dict[TopicPartition, int]:
    words = ", or earliest or latest" if smallest < 0 else ""
    reason = (
        f'{name} is {text!r}: numbers by topic and partition are right, as in {{"orders":{{"0":23,"1":42}}}}{words}'
    )
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(text, reason).items():
        if not isinstance(numbers, dict):
            raise SparkOptionError(reason)
        for partition, number in numbers.items():
            if not (partition.isascii() and partition.isdigit() and _is_number(number) and number >= smallest):
                raise SparkOptionError(reason)
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise SparkOptionError(reason)
    return found


def _json(text: str, reason: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        raise SparkOptionError(reason) from None
    if not isinstance(found, dict):
        raise SparkOptionError(reason)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_bounds(starting: Bound, ending: Bound) -> None:
    """What a batch query cannot mean."""
    if starting == Everywhere(LATEST):
        raise SparkOptionError("startingOffsets is latest: a batch query that starts at the end reads nothing")
    if ending == Everywhere(EARLIEST):
        raise SparkOptionError("endingOffsets is earliest: a batch query that ends at the start reads nothing")
    _check_places(starting, LATEST, "-1 (latest)")
    _check_places(ending, EARLIEST, "-2 (earliest)")
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        _check_order(starting.option, starting.offsets, ending.option, ending.offsets)
    if isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        first, last = starting.timestamps, ending.timestamps
        if isinstance(first, dict) and isinstance(last, dict):
            _check_order(starting.option, first, ending.option, last)


def _check_places(bound: Bound, place: int, words: str) -> None:
    if not isinstance(bound, AtOffsets):
        return
    for partition, offset in bound.offsets.items():
        if offset == place:
            raise SparkOptionError(f"{bound.option} for {partition} is {words}: a batch query would read nothing")


def _check_order(
    start_name: str, starts: dict[TopicPartition, int], end_name: str, ends: dict[TopicPartition, int]
) -> None:
    if only_one := starts.keys() ^ ends.keys():
        raise SparkOptionError(
            f"{start_name} and {end_name} differ in {_listed(only_one)}: both must name all partitions"
        )
    for partition, start in starts.items():
        if 0 <= ends[partition] < start:
            raise SparkOptionError(
                f"{start_name} for {partition} is {start}, after {end_name}, which is {ends[partition]}"
            )


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
