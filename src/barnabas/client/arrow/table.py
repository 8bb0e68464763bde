"""Topics as Arrow tables, from any broker of Kafka's protocol: ``barnabas.read`` and ``barnabas.read_batches``."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, SupportsIndex, TypeAlias, TypeGuard

import pyarrow as pa

from barnabas.client.arrow.columns import arrow_schema
from barnabas.client.arrow.ranges import ReadSettings, read_range
from barnabas.client.wire import Client, parse_addresses
from barnabas.client.wire.admin import EARLIEST, LATEST, list_offsets
from barnabas.client.wire.data import FetchLimits, OffsetRange
from barnabas.model.ids import ZERO_UUID, TopicPartition, uuid_text

DEFAULT_SERVERS = "127.0.0.1:9092"
FETCH_BYTES = 4 << 20
"""Of one request. One partition is read at a time, so it may have more than a consumer asks for."""
HEDGE_AFTER_MS = 500
"""A broker that is later than this with records that are committed is slow, or gone: another replica has them too."""
SMALLEST_TIME_MS = 100_000_000_000
"""In 1973. A smaller int is an offset, or seconds, by mistake."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_EXPECTED = '"earliest", "latest", a datetime, milliseconds since 1970, or offsets by partition such as {0: 17, 1: 23}'

Bound: TypeAlias = str | datetime | int | Mapping[int, int]
"""``"earliest"``, ``"latest"``, a time (a datetime or milliseconds since 1970), or offsets by partition."""


class _Log(NamedTuple):
    """What a partition holds: earliest <= offset < latest."""

    earliest: int
    latest: int


def read(
    topic: str,
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    partitions: Iterable[int] | None = None,
    columns: Iterable[str] | None = None,
    headers: bool = False,
    servers: str = DEFAULT_SERVERS,
    isolation: str = "read_committed",
    timeout_s: float = 60.0,
) -> pa.Table:
    """The records of a topic as an Arrow table, partition after partition, each in the order of its offsets.

    Columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType, and
    headers where asked for. ``start`` is included, ``end`` is not; ``"latest"`` is the end of each partition at the
    time of the call. A time means the first record at or after it; a naive datetime is local time. A partition that a
    mapping of offsets leaves out is read from its earliest or up to its latest offset. ``timeout_s`` bounds the wait
    for the next records.

    Raises ValueError for an argument, BrokerError for an unknown topic, BrokerUnavailable where no broker answers,
    DataLoss where records are deleted while they are read.
    """
    return read_batches(
        topic,
        start=start,
        end=end,
        partitions=partitions,
        columns=columns,
        headers=headers,
        servers=servers,
        isolation=isolation,
        timeout_s=timeout_s,
    ).read_all()


def read_batches(
    topic: str,
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    partitions: Iterable[int] | None = None,
    columns: Iterable[str] | None = None,
    headers: bool = False,
    servers: str = DEFAULT_SERVERS,
    isolation: str = "read_committed",
    timeout_s: float = 60.0,
) -> pa.RecordBatchReader:
    """As ``read``, but batch by batch, for topics that do not fit into memory. Iterate over it, or hand it to DuckDB.

    Bounds are resolved by this call; records are fetched as batches are taken.
    """
    _check_arguments(start, end, servers, isolation)
    names = _column_names(columns, headers)
    settings = ReadSettings(
        headers="headers" in names,
        limits=FetchLimits(
            partition_max_bytes=FETCH_BYTES,
            read_committed=isolation == "read_committed",
            hedge_after_ms=HEDGE_AFTER_MS,
        ),
        timeout_s=timeout_s,
    )
    with Client(servers, timeout_s=timeout_s) as client:
        wanted = _ranges(client, topic, start, end, partitions, settings.limits.read_committed)
    fields = [arrow_schema(settings.headers).field(name) for name in names]
    batches = _batches(servers, timeout_s, wanted, names, settings)
    return pa.RecordBatchReader.from_batches(pa.schema(fields), batches)


def _batches(
    servers: str, timeout_s: float, wanted: list[OffsetRange], names: list[str], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    with Client(servers, timeout_s=timeout_s) as client:
        for each in wanted:
            for batch in read_range(client, each, settings):
                yield batch.select(names)


def _ranges(
    client: Client, topic: str, start: Bound, end: Bound, partitions: Iterable[int] | None, read_committed: bool
) -> list[OffsetRange]:
    info = client.topic(topic)
    chosen = [TopicPartition(topic, number) for number in _chosen(topic, list(info.partitions), partitions)]
    earliest = list_offsets(client, dict.fromkeys(chosen, EARLIEST))
    latest = list_offsets(client, dict.fromkeys(chosen, LATEST), read_committed=read_committed)
    # Between the two questions retention may have moved the first offset past the last.
    logs = {each: _Log(earliest[each].offset, max(latest[each].offset, earliest[each].offset)) for each in chosen}
    starts = _offsets(client, logs, "start", start, read_committed)
    ends = _offsets(client, logs, "end", end, read_committed)
    topic_id = "" if info.topic_id == ZERO_UUID else uuid_text(info.topic_id)
    return [OffsetRange(each, starts[each], ends[each], topic_id) for each in chosen if starts[each] < ends[each]]


def _chosen(topic: str, known: list[int], partitions: Iterable[int] | None) -> list[int]:
    if partitions is None:
        return known
    try:
        wanted = sorted({operator.index(number) for number in partitions})
    except TypeError:
        raise ValueError(f"partitions is {partitions!r}: a list of partition numbers is expected") from None
    if unknown := [number for number in wanted if number not in known]:
        raise ValueError(f"partitions names {unknown[0]}, but topic {topic} has partitions 0 to {len(known) - 1}")
    return wanted


# Bounds


def _offsets(
    client: Client, logs: Mapping[TopicPartition, _Log], name: str, bound: Bound, read_committed: bool
) -> dict[TopicPartition, int]:
    if isinstance(bound, str):
        return {each: log.earliest if bound == "earliest" else log.latest for each, log in logs.items()}
    if isinstance(bound, Mapping):
        _check_offsets(name, bound, logs)
        return {
            each: operator.index(bound.get(each.partition, log.earliest if name == "start" else log.latest))
            for each, log in logs.items()
        }
    found = list_offsets(client, dict.fromkeys(logs, _time_ms(bound)), read_committed=read_committed)
    # -1 stands for no record that young.
    return {each: found[each].offset if found[each].offset >= 0 else log.latest for each, log in logs.items()}


def _time_ms(bound: datetime | int) -> int:
    if not isinstance(bound, datetime):
        return operator.index(bound)
    # A datetime of Python's own: those of pandas do not take one without a time zone for local time.
    moment = datetime.combine(bound.date(), bound.time(), bound.tzinfo).astimezone(UTC)
    return -((_EPOCH - moment) // _MILLISECOND)  # rounded up: records have whole milliseconds


def _check_offsets(name: str, bound: Mapping[int, int], logs: Mapping[TopicPartition, _Log]) -> None:
    by_number = {each.partition: (each, log) for each, log in logs.items()}
    for number, offset in bound.items():
        if number not in by_number:
            raise ValueError(f"{name} is {bound!r}: partition {number} is not among those that are read")
        each, log = by_number[number]
        if not log.earliest <= offset <= log.latest:
            raise ValueError(f"{name} is {bound!r}: {each} begins at offset {log.earliest} and ends at {log.latest}")


# Arguments


def _check_arguments(start: Bound, end: Bound, servers: str, isolation: str) -> None:
    try:
        parse_addresses(servers)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"servers is {servers!r}: {error}") from None
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ValueError(f"isolation is {isolation!r}: read_committed or read_uncommitted is expected")
    _check_bound("start", start)
    _check_bound("end", end)
    times = [_time_ms(bound) for bound in (start, end) if not isinstance(bound, str | Mapping)]
    if len(times) == 2 and times[0] > times[1]:
        raise ValueError(f"start is {start!r}, after end, which is {end!r}")
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        for number in start.keys() & end.keys():
            if start[number] > end[number]:
                raise ValueError(f"start is {start!r}, after end, which is {end!r}, in partition {number}")


def _check_bound(name: str, bound: object) -> None:
    if isinstance(bound, str):
        is_right = bound in ("earliest", "latest")
    elif isinstance(bound, Mapping):
        is_right = all(_is_count(number) and _is_count(offset) for number, offset in bound.items())
    else:
        is_right = isinstance(bound, datetime) or _is_count(bound)
    if not is_right:
        raise ValueError(f"{name} is {bound!r}: {_EXPECTED} is expected")
    if _is_count(bound) and operator.index(bound) < SMALLEST_TIME_MS:
        raise ValueError(
            f"{name} is {bound!r}: a number is a time in milliseconds since 1970, and this one lies before 1973; "
            f"name offsets by partition, as in {{0: {bound}}}, or give such a time as a datetime"
        )


def _is_count(value: object) -> TypeGuard[SupportsIndex]:
    """A whole number from 0 on, of Python or of numpy."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and operator.index(value) >= 0


def _column_names(columns: Iterable[str] | None, headers: bool) -> list[str]:
    known: list[str] = arrow_schema(True).names
    if columns is None:
        return known if headers else known[:-1]
    if isinstance(columns, str):
        raise ValueError(f"columns is {columns!r}: a list of names is expected")
    names = list(dict.fromkeys(columns))
    for name in names:
        if name not in known:
            raise ValueError(f"columns names {name!r}: {', '.join(known)} are known")
    return [*names, "headers"] if headers and "headers" not in names else names
