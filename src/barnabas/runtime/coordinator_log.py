"""A partition of an internal topic as the log of a coordinator's machine: appends, and the replay at loading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from barnabas.core.txn.marker import EndMarker, Producer
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.model.ports import Clock
from barnabas.runtime.partition import Partition
from barnabas.runtime.shard import Journaled
from barnabas.storage.log import Log
from barnabas.storage.producer_state import Origin
from barnabas.storage.replay import checked_batches
from barnabas.wire.batch import (
    HEADER_SIZE,
    SMALLEST_RECORD,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    InvalidRecord,
    UnsupportedCodec,
    UnsupportedMagic,
)
from barnabas.wire.compression import DecompressionError
from barnabas.wire.records import (
    BatchBuilder,
    ControlType,
    Record,
    decode_batch,
    read_control_type,
)

SMALLEST_BATCH, LARGEST_PLAIN_BATCH = HEADER_SIZE + SMALLEST_RECORD, 8 << 10
"""The length of a record takes two bytes at most in these."""
CONTINUES = 0x80
"""The bit of a varint's byte that says that another follows."""
RECORD_OVERHEAD = 32
"""Of a record beside its key and its value, at most."""

LOAD_BATCHES, LOAD_RECORDS = 2000, 500
"""Between two rests while a log is loaded: a few milliseconds' worth of reading, or of taking in what was read."""

UNREADABLE = (CorruptBatch, InvalidRecord, UnsupportedMagic, UnsupportedCodec, DecompressionError)
_END_MARKERS = {ControlType.COMMIT: True, ControlType.ABORT: False}


class Journalable(Protocol):
    """A record that belongs to a transaction, or to none."""

    @property
    def producer(self) -> Producer | None: ...


Encode = Callable[[Any], tuple[bytes, bytes | None]]
"""Makes the key and the value of a record."""


class Replayed(Protocol):
    """A machine that is loaded from its log."""

    def replay_stored(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes | None, value: bytes | None
    ) -> None:
        """A record that the machine cannot read is skipped. ``producer_id`` is that of a transaction, or -1."""

    def replay_end_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None: ...


class PartitionJournal:
    """Appends records of the machine, which may belong to a transaction, and markers that end one."""

    def __init__(self, partition: Partition, clock: Clock, encode: Encode) -> None:
        self._partition = partition
        self._clock = clock
        self._encode = encode

    @property
    def log_end_offset(self) -> int:
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def append(self, appended: Sequence[Any]) -> Journaled:
        """In one batch, or in several where max.message.bytes makes them: a topic's deletion may touch any number."""
        now_ms = self._clock.now_ms()
        if not self._partition.has_enough_in_sync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"too few replicas of {self._partition.name} are in sync")
        if isinstance(appended[0], EndMarker):
            last_offset = self._partition.append_end_marker(appended[0], now_ms).last_offset
        else:
            last_offset = self._append_records(appended, now_ms)
        return Journaled(last_offset + 1, self._partition.leader_epoch, now_ms)

    def _append_records(self, appended: Sequence[Journalable], now_ms: int) -> int:
        most = self._partition.log.settings.max_message_bytes
        producer = appended[0].producer
        builder = BatchBuilder()
        for record in appended:
            key, value = self._encode(record)
            if builder.count and builder.size + len(key) + len(value or b"") + RECORD_OVERHEAD > most:
                self._append(builder, producer, now_ms, most)
                builder = BatchBuilder()
            builder.append(now_ms, key, value)
        return self._append(builder, producer, now_ms, most)

    def _append(self, builder: BatchBuilder, producer: Producer | None, now_ms: int, most: int) -> int:
        if builder.size > most:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{builder.size} bytes are more than {most}")
        if producer is None:
            encoded = memoryview(bytearray(builder.build()))
            return self._partition.append(encoded, now_ms, Origin.COORDINATOR).last_offset
        batch = builder.build(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,  # as Kafka writes it; nobody checks sequences of coordinators
            attributes=TRANSACTIONAL,
        )
        encoded = memoryview(bytearray(batch))
        return self._partition.append(encoded, now_ms, Origin.COORDINATOR, guard=producer.guard).last_offset


def replay_log(log: Log, machine: Replayed) -> Iterator[None]:
    """Makes the machine what the log says, oldest first; rests after every ``LOAD_BATCHES`` so that others can run.

    Records of types or versions that we do not know are passed over and stay in the log. Raises DiskError, LogOffline,
    or one of ``UNREADABLE`` at the first batch that is damaged.
    """
    latest: dict[bytes | None, Record | bytes] = {}
    """Key -> the last record, or the batch that holds nothing else: most are commits that a later one replaces."""
    for number, (content, position, header) in enumerate(checked_batches(log, log.log_start_offset), 1):
        if header.is_control or header.is_transactional:
            yield from _replay_in_steps(latest, machine)
        if header.is_control:
            _replay_control(content, position, header, machine)
            continue
        key = _only_key(content, position, header)
        if header.is_transactional:
            _replay(decode_batch(content, position), header.producer_id, header.producer_epoch, machine)
        elif key is not None:
            latest[key] = content[position : position + header.size]
        else:
            latest.update([(record.key, record) for record in decode_batch(content, position)])
        if number % LOAD_BATCHES == 0:
            yield
    yield from _replay_in_steps(latest, machine)


def _replay_in_steps(latest: dict[bytes | None, Record | bytes], machine: Replayed) -> Iterator[None]:
    records = list(latest.values())
    latest.clear()
    for start in range(0, len(records), LOAD_RECORDS):
        if start:
            yield
        _replay(records[start : start + LOAD_RECORDS], NO_PRODUCER_ID, NO_PRODUCER_EPOCH, machine)


def _only_key(content: bytes, position: int, header: BatchHeader) -> bytes | None:
    """The key of a batch that holds one plain record, as most do. None for any other, and where in doubt."""
    if header.record_count != 1 or header.is_compressed or not SMALLEST_BATCH <= header.size <= LARGEST_PLAIN_BATCH:
        return None
    at = position + HEADER_SIZE
    at += 1 if content[at] < CONTINUES else 2  # its length
    first, second = content[at + 3], content[at + 4]  # after attributes and the deltas of timestamp and offset
    if content[at + 1] or content[at + 2] or first & 1:
        return None
    if first < CONTINUES:
        return content[at + 4 : at + 4 + (first >> 1)]
    if second >= CONTINUES:
        return None
    return content[at + 5 : at + 5 + ((first & 0x7F | second << 7) >> 1)]


def _replay(records: Iterable[Record | bytes], producer_id: int, producer_epoch: int, machine: Replayed) -> None:
    for found in records:
        record = found if isinstance(found, Record) else decode_batch(found)[0]
        machine.replay_stored(record.offset, producer_id, producer_epoch, record.key, record.value)


def _replay_control(content: bytes, position: int, header: BatchHeader, machine: Replayed) -> None:
    for record in decode_batch(content, position):
        kind = read_control_type(record)
        if kind in _END_MARKERS:
            machine.replay_end_marker(header.producer_id, header.producer_epoch, committed=_END_MARKERS[kind])
