"""Appends batches whose offsets a leader has assigned: replication, and the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.settings import INT_MAX
from barnabas.storage.producer_state import ProducerState
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    UnsupportedMagic,
    check_crc,
    iterate,
    read_header,
)
from barnabas.wire.records import ControlType, decode_batch, read_control_type, read_coordinator_epoch

if TYPE_CHECKING:
    from barnabas.storage.log import Log


def append_batches(log: Log, batches: memoryview, now_ms: int) -> None:
    """Neighbouring batches go to the disk in one write, unless a segment ends between them."""
    start_offset = _start_of_empty(log, batches)
    found = _check(batches, log.log_end_offset if start_offset is None else start_offset)
    if start_offset is not None and found:
        log.truncate_fully_and_start_at(start_offset)
    index = 0
    while index < len(found):
        index = _append_run(log, batches, found, index, now_ms)


def _start_of_empty(log: Log, batches: memoryview) -> int | None:
    """Where an empty log has to begin instead, if it begins in the middle of the leader's first batch.

    DeleteRecords may have moved the leader's log start into a batch, which is replicated whole.
    """
    if log.log_start_offset < log.log_end_offset or len(batches) < HEADER_SIZE:
        return None
    try:
        first = read_header(batches, 0)
    except (CorruptBatch, UnsupportedMagic):
        return None
    return first.base_offset if first.base_offset < log.log_end_offset <= first.last_offset else None


def _check(batches: memoryview, log_end_offset: int) -> list[tuple[int, BatchHeader]]:
    found: list[tuple[int, BatchHeader]] = []
    next_offset = log_end_offset
    try:
        for position, header in iterate(batches):
            if not check_crc(batches, position, header.size):
                raise CorruptBatch(f"checksum of the batch at offset {header.base_offset} does not match")
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"a batch at {header.base_offset} cannot follow {next_offset}"
                )
            next_offset = header.next_offset
            found.append((position, header))
    except (CorruptBatch, UnsupportedMagic) as error:
        raise ApiError(error.code, str(error)) from None
    return found


def _append_run(log: Log, batches: memoryview, found: list[tuple[int, BatchHeader]], index: int, now_ms: int) -> int:
    """Writes the batches from ``index`` on that fit the active segment; returns the first that is left."""
    start, first = found[index]
    segment = log.active
    if segment.must_roll(first.size, first.last_offset, first.max_timestamp, now_ms, log.limits):
        overflows = first.last_offset - log.log_end_offset > INT_MAX
        segment = log.roll(now_ms, first.base_offset if overflows else None)
    end = start + first.size
    stop = index + 1
    room = log.limits.segment_bytes - segment.size
    while stop < len(found):
        position, header = found[stop]
        if position + header.size - start > room or header.last_offset - segment.base_offset > INT_MAX:
            break
        end = position + header.size
        stop += 1
    log.write(segment, batches[start:end])
    for position, header in found[index:stop]:
        log.epochs.assign(header.leader_epoch, header.base_offset)
        log.on_appended(segment, header.size, header.last_offset, header.max_timestamp)
        if header.producer_id >= 0:
            aborted = replay(log.producers, batches, position, header, now_ms)
            if aborted is not None:
                log.index_aborted(segment, aborted)
    return stop


def replay(
    producers: ProducerState, buffer: Buffer, position: int, header: BatchHeader, now_ms: int
) -> AbortedTransaction | None:
    """Takes a batch into the producer state without asking whether it should be there."""
    if not header.is_control:
        producers.remember(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
            now_ms,
        )
        return None
    records = decode_batch(buffer, position)
    if not records:
        return None  # the cleaner has taken the marker away
    kind = read_control_type(records[0])
    if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
        return None
    return producers.complete(
        header.producer_id,
        header.producer_epoch,
        read_coordinator_epoch(records[0]),
        header.base_offset,
        header.max_timestamp,
        kind is ControlType.ABORT,
        now_ms,
    )
