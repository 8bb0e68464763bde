"""Finds records by timestamp: the indexes lead to a batch, whose records are then read within bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.storage import damage
from barnabas.storage.segment import Segment
from barnabas.wire.batch import BatchHeader, CorruptBatch, InvalidRecord, UnsupportedCodec
from barnabas.wire.compression import DecompressionError
from barnabas.wire.records import MAX_DECOMPRESSED_BYTES, Record, iterate_payload, payload

if TYPE_CHECKING:
    from barnabas.storage.log import Log

MAX_LOOKED_AT = 100_000
"""Records of one batch that are looked at one by one. No producer makes larger batches; of one that does, a reader is
given an earlier record than it asked for, which skips nothing."""


class TimestampOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """Raises CorruptBatch where the record may lie in a place that cannot be read."""
    for segment in log.segments:
        if segment.size and _max_timestamp(segment) >= timestamp:
            found = _search(log, segment, timestamp)
            if found is not None:
                return found
    return None


def _search(log: Log, segment: Segment, timestamp: int) -> TimestampOffset | None:
    segment.open_indexes()
    start = segment.time_index.offset_before(timestamp)
    if not segment.base_offset <= start < segment.next_offset:
        damage.repair_indexes(log, segment, CorruptBatch(f"the time index names offset {start}"))
        start = segment.time_index.offset_before(timestamp)
    place = damage.position_of(log, segment, max(start, log.log_start_offset))
    for position, header in segment.batches(place[0]) if place else ():
        if header.max_timestamp >= timestamp:
            found = _first(
                segment,
                position,
                header,
                lambda record: record.timestamp >= timestamp and record.offset >= log.log_start_offset,
            )
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all."""
    latest = -1
    best: Segment | None = None
    for segment in log.segments:
        if segment.size and _max_timestamp(segment) > latest:
            latest, best = segment.max_timestamp, segment
    if best is None:
        return None
    place = damage.position_of(log, best, best.offset_of_max_timestamp)
    return _first(best, *place, lambda record: record.timestamp == latest) if place else None


def _max_timestamp(segment: Segment) -> int:
    segment.largest_timestamp()
    return segment.max_timestamp


def _first(
    segment: Segment, position: int, header: BatchHeader, wanted: Callable[[Record], bool]
) -> TimestampOffset | None:
    batch = segment.open_log().read(header.size, position)
    try:
        data = payload(batch, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
        for index, record in enumerate(iterate_payload(header, data)):
            if wanted(record) or index == MAX_LOOKED_AT:
                return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
    except (CorruptBatch, InvalidRecord, UnsupportedCodec, DecompressionError) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at {header.base_offset}: {error}") from None
    return None
