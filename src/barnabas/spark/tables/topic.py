"""A topic's side of a comparison: its records window by window, with what is no record between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from barnabas.client.arrow.columns import read_columns
from barnabas.client.wire import Client
from barnabas.client.wire.admin import EARLIEST, LATEST, list_offsets
from barnabas.client.wire.data import Fetched, FetchLimits, fetch
from barnabas.model.ids import TopicPartition
from barnabas.spark.tables import runs
from barnabas.spark.tables.parquet_writer import offsets_of
from barnabas.spark.tables.runs import Runs
from barnabas.wire import batch as batches

WINDOW_BYTES = 8 * 1024 * 1024
MAX_WAIT_MS = 500


class Window(NamedTuple):
    start: int
    end: int
    records: pa.RecordBatch | None
    """All records of the window, those of aborted transactions, too."""
    offsets: Runs
    """Theirs."""
    committed: Runs
    """Those of them that a reader of committed records gets."""
    control: Runs
    """Offsets of markers."""


class Bounds(NamedTuple):
    log_start_offset: int
    high_watermark: int


def bounds_of(client: Client, partition: TopicPartition) -> Bounds:
    first = list_offsets(client, {partition: EARLIEST})[partition].offset
    return Bounds(first, list_offsets(client, {partition: LATEST})[partition].offset)


def window_at(client: Client, partition: TopicPartition, start: int, stop: int, max_bytes: int) -> Window | None:
    """What one fetch brings from ``start`` on; None where the topic has nothing there any more, or not yet."""
    fetched = _fetch(client, partition, start, max_bytes)
    if fetched is None:
        return None
    everything = read_columns(fetched, start, stop, headers=False, read_committed=False)
    end = everything.next_offset
    found = runs.NOTHING if everything.batch is None else runs.of_offsets(offsets_of(everything.batch))
    committed = found
    if fetched.aborted:
        readable = read_columns(fetched, start, end, headers=False, read_committed=True).batch
        committed = runs.NOTHING if readable is None else runs.of_offsets(offsets_of(readable))
    return Window(start, end, everything.batch, found, committed, _control(fetched, start, end))


def windows(client: Client, partition: TopicPartition, start: int, stop: int) -> Iterator[Window]:
    """Window after window, as far as the topic goes."""
    while start < stop:
        window = window_at(client, partition, start, stop, WINDOW_BYTES)
        if window is None:
            return
        yield window
        start = window.end


def _fetch(client: Client, partition: TopicPartition, start: int, max_bytes: int) -> Fetched | None:
    """Behind the last stable offset nothing is told to readers of committed records: then the others' view must do."""
    for read_committed in (True, False):
        limits = FetchLimits(MAX_WAIT_MS, 1, max(max_bytes, 1), max(max_bytes, 1), read_committed)
        for fetched in fetch(client, {partition: start}, limits):
            if len(fetched.records):
                return fetched
    return None


def _control(fetched: Fetched, start: int, end: int) -> Runs:
    headers = (header for _, header in batches.iterate(fetched.records))
    return runs.of_bounds(
        (max(header.base_offset, start), min(header.next_offset, end)) for header in headers if header.is_control
    )
