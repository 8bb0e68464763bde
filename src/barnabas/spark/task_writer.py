"""What a task of the sink does: Arrow batches to the topics that they name, over one connection to each broker.

Nothing is asked of a broker before the first row: many tasks of a small batch have none.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.arrow.columns import keep_freed_memory
from barnabas.client.arrow.encoding import BatchEncoder, EncodedBatch, RowRefused, rows_of
from barnabas.client.wire.admin import ResourceType, describe_configs
from barnabas.client.wire.client import Client
from barnabas.client.wire.errors import BrokerError, ClientError
from barnabas.spark.client_settings import SparkOptionError, whole_number
from barnabas.spark.options import SinkOptions, connect
from barnabas.spark.producer import Delivery, Producer, ProducerSettings
from barnabas.wire.compression import Codec

MAX_OPEN_BYTES = 64 * 1024 * 1024
"""Of all topics of a task together: what waits for its batch to become full."""

DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
SMALLEST_BATCH_BYTES = 1024

_CODECS = {None: Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class Counts(NamedTuple):
    rows: int = 0
    batches: int = 0
    bytes: int = 0

    def plus(self, batches: Iterable[EncodedBatch]) -> Counts:
        rows, count, size = self
        for batch in batches:
            rows, count, size = rows + batch.record_count, count + 1, size + len(batch.data)
        return Counts(rows, count, size)


def write_batches(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Counts:
    """Returns when all rows are stored. Raises BrokerError, ClientError or RowRefused."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Counts()
    keep_freed_memory()
    with connect(options.kafka) as client:
        writer = TopicWriter(client, options)
        writer.add(first)
        for batch in filled:
            writer.add(batch)
        return writer.finish()


def delivery_of(options: SinkOptions) -> Delivery:
    """Raises SparkOptionError."""
    wanted = options.client.get("enable.idempotence", "").strip().lower()
    if wanted not in ("", "true", "false"):
        raise SparkOptionError(f"kafka.enable.idempotence is {wanted!r}: true or false is right")
    if wanted == "true" and options.acks != -1:
        raise SparkOptionError(f"kafka.acks is {options.acks}: with kafka.enable.idempotence only all is right")
    return Delivery(options.bootstrap_servers, is_idempotent=wanted != "false" and options.acks == -1)


def producer_settings(kafka: Mapping[str, str], acks: int) -> ProducerSettings:
    """Raises SparkOptionError."""
    return ProducerSettings(
        acks=acks,
        request_timeout_ms=whole_number(kafka, "request.timeout.ms", DEFAULT_REQUEST_TIMEOUT_MS, smallest=1),
        delivery_timeout_s=whole_number(kafka, "delivery.timeout.ms", DEFAULT_DELIVERY_TIMEOUT_MS) / 1000,
        backoff_s=whole_number(kafka, "retry.backoff.ms", 100, smallest=1) / 1000,
        max_backoff_s=whole_number(kafka, "retry.backoff.max.ms", 1_000, smallest=1) / 1000,
    )


class TopicWriter:
    def __init__(self, client: Client, options: SinkOptions, delivery: Delivery | None = None) -> None:
        self._client = client
        self._options = options
        self._delivery = delivery or delivery_of(options)
        self._producer = Producer(client, self._delivery, producer_settings(options.client, options.acks))
        self._encoders: dict[str, BatchEncoder] = {}
        self._has_begun = False
        self._counts = Counts()

    @property
    def topics(self) -> list[str]:
        """That rows have gone to."""
        return sorted(self._encoders)

    def add(self, batch: pa.RecordBatch) -> None:
        now_ms = time.time_ns() // 1_000_000
        if not self._options.include_timestamp and "timestamp" in batch.schema.names:
            batch = batch.drop_columns(["timestamp"])
        for topic, part in self._by_topic(batch):
            self._send(topic, self._encoder(topic).append(rows_of(part), now_ms))
        if sum(encoder.open_bytes for encoder in self._encoders.values()) > MAX_OPEN_BYTES:
            self.flush()

    def finish(self) -> Counts:
        self.flush()
        self._producer.flush()
        self._delivery.end()
        return self._counts

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic").dictionary_encode()
        if topics.null_count:
            raise RowRefused("column 'topic': null in a row, and the option topic is not set")
        names, codes = topics.dictionary.to_pylist(), topics.indices
        if len(names) == 1:
            yield names[0], batch
            return
        # A stable sort keeps the order of the rows of a topic.
        sorted_batch = batch.take(pc.array_sort_indices(codes))
        start = 0
        for count in sorted(pc.value_counts(codes).to_pylist(), key=lambda item: item["values"]):
            yield names[count["values"]], sorted_batch.slice(start, count["counts"])
            start += count["counts"]

    def _encoder(self, topic: str) -> BatchEncoder:
        encoder = self._encoders.get(topic)
        if encoder is None:
            partition_count = len(self._client.topic(topic, auto_create=True).partitions)
            encoder = self._encoders[topic] = BatchEncoder(
                topic,
                partition_count,
                codec=_CODECS[self._options.compression],
                max_batch_bytes=self._max_batch_bytes(topic),
                max_open_bytes=MAX_OPEN_BYTES,
                sticky=random.randrange(partition_count),
            )
        return encoder

    def _max_batch_bytes(self, topic: str) -> int:
        """What the topic allows, where it says so: not every broker lets everyone ask."""
        most = self._options.max_batch_bytes
        with suppress(BrokerError, ClientError, ValueError):
            entries = describe_configs(self._client, ResourceType.TOPIC, [topic], keys=["max.message.bytes"])[topic]
            most = min([most, *(int(entry.value) for entry in entries if entry.value)])
        return max(most, SMALLEST_BATCH_BYTES)

    def flush(self) -> None:
        for topic, encoder in self._encoders.items():
            self._send(topic, encoder.flush())

    def _send(self, topic: str, batches: list[EncodedBatch]) -> None:
        if not batches:
            return
        if not self._has_begun:
            self._delivery.begin(self._client)
            self._has_begun = True
        self._producer.send(topic, batches)
        self._counts = self._counts.plus(batches)
