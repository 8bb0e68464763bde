"""Decodes fetched bytes, without records before the offset, control records and aborted transactions."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from barnabas.client.wire.data import Fetched
from barnabas.client.wire.errors import ProtocolError
from barnabas.wire import batch as batches
from barnabas.wire import records as records_of_batch
from barnabas.wire.records import ControlType, Record


class Decoded(NamedTuple):
    records: list[Record]
    next_offset: int
    """Where to fetch on: beyond what was left out, too."""


def decode(
    fetched: Fetched,
    offset: int,
    *,
    read_committed: bool = False,
) -> Decoded:
    """The records at and after ``offset``, the one that was asked for.

    Raises what ``records.decode_batch`` does for bytes that are no batch, and ProtocolError where a first batch is
    cut off: asking again would bring the same.
    """
    found: list[Record] = []
    view = fetched.records
    next_offset = offset
    aborted = AbortedProducers(fetched.aborted) if read_committed else None
    for position, header in batches.iterate(view):
        if header.next_offset <= next_offset:
            continue
        if not batches.check_crc(view, position, header.size):
            raise batches.CorruptBatch(
                f"{fetched.partition}: the batch at offset {header.base_offset} has a bad checksum"
            )
        if header.is_control:
            if aborted:
                aborted.end(view, position, header)
        elif not (aborted and aborted.holds(header)):
            records = records_of_batch.decode_batch(view, position)
            found += records if header.base_offset >= next_offset else [r for r in records if r.offset >= next_offset]
        next_offset = header.next_offset
    if len(view) and next_offset == offset:
        raise ProtocolError(f"{fetched.partition}: {len(view)} bytes at offset {offset} hold no whole batch")
    return Decoded(found, next_offset)


class AbortedProducers:
    """Which producers are inside an aborted transaction as the batches go by (KIP-98)."""

    __slots__ = ("_coming", "_open")

    def __init__(self, aborted: tuple[tuple[int, int], ...]) -> None:
        self._coming = deque(sorted(aborted, key=lambda item: item[1]))
        self._open: set[int] = set()

    def holds(self, header: batches.BatchHeader) -> bool:
        self._advance(header)
        return header.is_transactional and header.producer_id in self._open

    def end(self, view: memoryview, position: int, header: batches.BatchHeader) -> None:
        self._advance(header)
        marker = records_of_batch.decode_batch(view, position)
        if marker and records_of_batch.read_control_type(marker[0]) is ControlType.ABORT:
            self._open.discard(header.producer_id)

    def _advance(self, header: batches.BatchHeader) -> None:
        while self._coming and self._coming[0][1] <= header.last_offset:
            self._open.add(self._coming.popleft()[0])
