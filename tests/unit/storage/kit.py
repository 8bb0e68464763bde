"""Shared by the storage tests."""

from __future__ import annotations

from typing import Any

from barnabas.model.ids import TopicPartition
from barnabas.model.topic_settings import TopicSettings
from barnabas.sim.disk import SimDisk
from barnabas.storage.log import Appended, Log
from barnabas.storage.producer_state import Origin
from barnabas.wire.batch import is_transactional, iterate, producer_of
from barnabas.wire.records import Record, decode_batch, encode_batch, encode_end_marker

NOW = 1_700_000_000_000
PARTITION = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"


def small(**settings: Any) -> TopicSettings:
    """Settings that make segments roll after a few batches; below what a client may ask for."""
    return TopicSettings(**{"segment_bytes": 1000, "index_interval_bytes": 100, **settings})


def open_log(disk: Any, settings: TopicSettings | None = None, **arguments: Any) -> Log:
    arguments.setdefault("now_ms", NOW)
    return Log.open(disk, DIRECTORY, PARTITION, settings or small(), **arguments)


def new_log(settings: TopicSettings | None = None, **arguments: Any) -> Log:
    return open_log(SimDisk(), settings, **arguments)


def batch(
    count: int = 1, *, value: bytes = b"value", timestamp: int = NOW, key: bytes | None = b"key", **fields: Any
) -> bytes:
    return encode_batch([Record(-1, timestamp, key, value) for _ in range(count)], **fields)


def append(
    log: Log, data: bytes | None = None, *, leader_epoch: int = 0, now_ms: int = NOW, **arguments: Any
) -> Appended:
    """A batch of a transaction is appended as if its coordinator had been asked."""
    data = data or batch()
    if is_transactional(data):
        arguments.setdefault("guard", log.producers.begin_verification(*producer_of(data)))
    return log.append_as_leader(memoryview(bytearray(data)), leader_epoch, now_ms, **arguments)


def produce(log: Log, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, **fields: Any) -> Appended:
    data = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)
    return append(log, data)


def end_transaction(
    log: Log, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> Appended:
    marker = encode_end_marker(
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=NOW,
    )
    return append(log, marker, origin=Origin.COORDINATOR)


def span(appended: Appended) -> tuple[int, int]:
    return appended.first_offset, appended.last_offset


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from the offset on, as a consumer would read on."""
    offset = log.log_start_offset if offset is None else offset
    found: list[Record] = []
    while True:
        result = log.read(offset, max_bytes)
        if result.records is None:
            return found
        data = result.records.read()
        end = 0
        for position, header in iterate(data):
            records = decode_batch(data, position)
            found += [record for record in records if record.offset >= offset]
            end = position + header.size
        assert end == len(data), "a read ends inside a batch"
        assert result.next_offset > offset
        offset = result.next_offset


def offsets(log: Log) -> list[int]:
    return [record.offset for record in read_all(log)]


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]
