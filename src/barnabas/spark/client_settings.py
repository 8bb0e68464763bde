"""Options that begin with ``kafka.``: which of them mean something here, and a client made by them.

Spark hands them to Kafka's own client, which takes what it knows. Here those that have a meaning are honoured, the
other settings of Kafka's clients are accepted without effect, and what would be wrong to ignore is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from barnabas.client.wire import Client, ConnectionSettings, parse_addresses
from barnabas.client.wire.data import FetchLimits

PREFIX = "kafka."

D = TypeVar("D", bool, int, None)

DEFAULT_CLIENT_ID = "barnabas-spark"
DEFAULT_API_TIMEOUT_MS = 60_000
DEFAULT_PARTITION_FETCH_BYTES = 4 << 20
"""Kafka's consumer asks for 1 MB, to be fair to many partitions. A task here has one partition and wants all of it."""
DEFAULT_FETCH_BYTES = 64 << 20


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


HONOURED = _names(
    "bootstrap.servers client.id client.rack default.api.timeout.ms fetch.max.bytes fetch.max.wait.ms fetch.min.bytes"
    " group.id isolation.level max.partition.fetch.bytes request.timeout.ms retry.backoff.max.ms retry.backoff.ms"
    " security.protocol socket.connection.setup.timeout.ms"
    " acks batch.size compression.type delivery.timeout.ms enable.idempotence max.request.size"
    " transaction.timeout.ms"
)

WITHOUT_EFFECT = _names(
    "allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter check.crcs client.dns.lookup"
    " connections.max.idle.ms enable.metrics.push exclude.internal.topics group.instance.id group.protocol"
    " group.remote.assignor heartbeat.interval.ms max.poll.interval.ms max.poll.records metadata.max.age.ms"
    " metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples"
    " metrics.recording.level metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes"
    " reconnect.backoff.max.ms reconnect.backoff.ms security.providers send.buffer.bytes session.timeout.ms"
    " socket.connection.setup.timeout.max.ms throw.on.fetch.stable.offset.unsupported"
    " buffer.memory compression.gzip.level compression.lz4.level compression.zstd.level linger.ms max.block.ms"
    " max.in.flight.requests.per.connection metadata.max.idle.ms partitioner.adaptive.partitioning.enable"
    " partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys retries"
)

REFUSED: Mapping[str, str] = {
    "auto.offset.reset": "where to start is the option startingOffsets: earliest or latest",
    "enable.auto.commit": "the query's progress is published by itself, see the option publishProgress",
    "interceptor.classes": "there are no classes of Java here",
    "key.deserializer": "keys come as bytes: decode them with columns of the DataFrame",
    "value.deserializer": "values come as bytes: decode them with columns of the DataFrame",
    "key.serializer": "keys are given as bytes or strings: encode them with columns of the DataFrame",
    "value.serializer": "values are given as bytes or strings: encode them with columns of the DataFrame",
    "transactional.id": "the sink names its own transactions",
}

NOT_YET = ("ssl.", "sasl.")
"""They come in at ConnectionSettings.wrap and ConnectionSettings.authenticate."""

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class SparkOptionError(ValueError):
    """An option that is unknown, or whose value is not right. The message says what would be."""


def without_prefix(options: Mapping[str, str]) -> dict[str, str]:
    """The options that begin with ``kafka.``, by Kafka's names."""
    found = {name.lower(): value for name, value in options.items() if name.lower().startswith(PREFIX)}
    return {name.removeprefix(PREFIX): value for name, value in found.items()}


def check(kafka: Mapping[str, str]) -> None:
    """Raises SparkOptionError for what is unknown, refused, or needed and missing."""
    for name, value in kafka.items():
        _check_name(name)
        if name == "security.protocol" and value.strip().upper() != "PLAINTEXT":
            raise SparkOptionError(f"kafka.security.protocol is {value!r}: only PLAINTEXT is supported so far")
    if not kafka.get("bootstrap.servers", "").strip():
        raise SparkOptionError("kafka.bootstrap.servers is missing: the brokers to ask first, as HOST:PORT,HOST:PORT")
    try:
        parse_addresses(kafka["bootstrap.servers"])
    except ValueError as error:
        raise SparkOptionError(f"kafka.bootstrap.servers: {error}") from None
    if isolation_level(kafka) not in ISOLATION_LEVELS:
        raise SparkOptionError(
            f"kafka.isolation.level is {kafka['isolation.level']!r}: read_committed or read_uncommitted is right"
        )
    for name in ("request.timeout.ms", "default.api.timeout.ms", "socket.connection.setup.timeout.ms"):
        whole_number(kafka, name, 1, smallest=1)
    fetch_limits(kafka)


def _check_name(name: str) -> None:
    if name in REFUSED:
        raise SparkOptionError(f"kafka.{name} cannot be set: {REFUSED[name]}")
    if name.startswith(NOT_YET):
        raise SparkOptionError(f"kafka.{name} cannot be set: encryption and authentication are not supported so far")
    if name not in HONOURED and name not in WITHOUT_EFFECT:
        near = nearest(name, [*HONOURED, *WITHOUT_EFFECT])
        raise SparkOptionError(f"kafka.{name} is no setting of a Kafka client" + (f": kafka.{near}?" if near else ""))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None


def isolation_level(kafka: Mapping[str, str]) -> str:
    return kafka.get("isolation.level", ISOLATION_LEVELS[0]).strip().lower()


def is_read_committed(kafka: Mapping[str, str]) -> bool:
    return isolation_level(kafka) == "read_committed"


def api_timeout_s(kafka: Mapping[str, str]) -> float:
    """How long one question may take with all its attempts."""
    return whole_number(kafka, "default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS, smallest=1) / 1000


def fetch_limits(kafka: Mapping[str, str]) -> FetchLimits:
    return FetchLimits(
        max_wait_ms=whole_number(kafka, "fetch.max.wait.ms", 500),
        min_bytes=whole_number(kafka, "fetch.min.bytes", 1),
        max_bytes=whole_number(kafka, "fetch.max.bytes", DEFAULT_FETCH_BYTES, smallest=1),
        partition_max_bytes=whole_number(kafka, "max.partition.fetch.bytes", DEFAULT_PARTITION_FETCH_BYTES, smallest=1),
        read_committed=is_read_committed(kafka),
    )


def whole_number(kafka: Mapping[str, str], name: str, default: int, *, smallest: int = 0) -> int:
    return default if name not in kafka else _at_least(smallest, f"kafka.{name}", kafka[name])


def _at_least(smallest: int, name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = smallest - 1
    if value < smallest:
        raise SparkOptionError(f"{name} is {text!r}: a whole number of at least {smallest} is right")
    return value


def connect(kafka: Mapping[str, str]) -> Client:
    """A client by Kafka's settings, whose names may carry the prefix. Connects on its first use."""
    plain = {name.lower().removeprefix(PREFIX): value for name, value in kafka.items()}
    settings = ConnectionSettings(
        client_id=plain.get("client.id", DEFAULT_CLIENT_ID),
        connect_timeout_s=whole_number(plain, "socket.connection.setup.timeout.ms", 5_000, smallest=1) / 1000,
        request_timeout_s=whole_number(plain, "request.timeout.ms", 30_000, smallest=1) / 1000,
    )
    return Client(
        plain["bootstrap.servers"],
        settings,
        timeout_s=api_timeout_s(plain),
        backoff_s=whole_number(plain, "retry.backoff.ms", 100, smallest=1) / 1000,
        max_backoff_s=whole_number(plain, "retry.backoff.max.ms", 1_000, smallest=1) / 1000,
    )


class GivenOptions:
    """Options as a user gave them, by their proper names. Names do not depend on case."""

    def __init__(
        self,
        options: Mapping[str, str],
        names: Iterable[str],
        others: Container[str],
        prefixes: tuple[str, ...],
        unknown: Callable[[str, Iterable[str]], str],
    ) -> None:
        """``others`` and names with one of the prefixes are not looked at. Raises SparkOptionError with ``unknown``."""
        by_lower = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in by_lower:
                self._values[by_lower[lower]] = str(value).strip()
            elif not (lower in others or lower.startswith(prefixes)):
                raise SparkOptionError(unknown(name, by_lower.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def flag(self, name: str, default: D) -> bool | D:
        value = self._values.get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise SparkOptionError(f"{name} is {value!r}: true or false is right")
        return value.lower() == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """The first of them is the default."""
        value = self._values.get(name, choices[0]).lower()
        if value not in choices:
            known = " or ".join(filter(None, choices))
            raise SparkOptionError(f"{name} is {self._values[name]!r}: {known} is right")
        return value

    def number(self, name: str, default: D, *, smallest: int = 1) -> int | D:
        return default if name not in self else _at_least(smallest, name, self._values[name])

    def size(self, name: str, default: int) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        found = _SIZE.fullmatch(value.lower())
        if found is None or int(found[1]) == 0:
            raise SparkOptionError(f"{name} is {value!r}: a size such as 64mb is right")
        return int(found[1]) << {"b": 0, "k": 10, "m": 20, "g": 30}[(found[2] or "b")[0]]

    def duration_s(self, name: str, default: float) -> float:
        value = self._values.get(name)
        if value is None:
            return default
        found = _DURATION.fullmatch(value.lower())
        if found is None:
            raise SparkOptionError(f"{name} is {value!r}: a time such as 500ms, 30s, 15m, 12h or 7d is right")
        return int(found[1]) * _UNITS_S[found[2] or "ms"]


_SIZE = re.compile(r"(\d+)\s*(b|kb?|mb?|gb?)?")
_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
