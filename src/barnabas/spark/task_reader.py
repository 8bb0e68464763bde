"""One task's read: the client by the query's Kafka settings, and Spark's words for lost records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from barnabas.client.arrow import ranges
from barnabas.client.arrow.columns import keep_freed_memory
from barnabas.client.wire import Client
from barnabas.client.wire.data import OffsetRange
from barnabas.client.wire.errors import DataLoss
from barnabas.spark.batch_plan import HINT
from barnabas.spark.client_settings import connect, fetch_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """What a task needs to know besides its range. It travels with every task."""

    kafka: dict[str, str]
    include_headers: bool
    fail_on_data_loss: bool
    poll_timeout_s: float


def read_range(wanted: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Raises DataLoss, BrokerError, BrokerUnavailable, TimeoutError, or what ``read_columns`` does."""
    asked = ranges.ReadSettings(
        headers=settings.include_headers,
        limits=fetch_limits(settings.kafka),
        rack=settings.kafka.get("client.rack", ""),
        fail_on_data_loss=settings.fail_on_data_loss,
        timeout_s=settings.poll_timeout_s,
    )
    try:
        yield from ranges.read_range(_client(settings.kafka), wanted, asked)
    except DataLoss as loss:
        raise DataLoss(f"{loss}; {HINT}") from None


_clients: dict[frozenset[tuple[str, str]], Client] = {}
"""Spark keeps its Python workers, and so they keep their connections. A worker has one task at a time."""


def _client(kafka: Mapping[str, str]) -> Client:
    key = frozenset(kafka.items())
    if key not in _clients:
        keep_freed_memory()
        _clients[key] = connect(kafka)
    return _clients[key]
