"""The records of one offset range as Arrow batches.

The next fetch is sent while the last one is decoded. Broker restarts and leader changes only delay a read. Records that
were deleted or truncated meanwhile are reported as DataLoss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from barnabas.client.arrow.columns import read_columns
from barnabas.client.wire import BrokerError, BrokerUnavailable, Client, Connection, hedge
from barnabas.client.wire.admin import EARLIEST, LATEST, list_offsets
from barnabas.client.wire.connection import Sent
from barnabas.client.wire.data import (
    DEFAULT_LIMITS,
    LAST_VERSION_BY_NAME,
    Fetched,
    FetchLimits,
    OffsetRange,
    fetched_of,
)
from barnabas.client.wire.errors import DataLoss, check
from barnabas.model.errors import RETRIABLE, ErrorCode
from barnabas.model.ids import ZERO_UUID, uuid_from_text
from barnabas.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

LARGEST_BATCH_BYTES = 32 << 20
"""Of one Arrow batch, decompressed."""
SMALLEST_BATCH_ROWS = 8192
SMALLEST_BATCH_BYTES = 1 << 20
"""Batches below both are merged with the next ones: a small batch costs a reader about as much as a large one."""

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 1.0

MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    }
)
"""Answers that may mean a loss; which, the cluster must be asked."""

_OFFSET_AND_LENGTH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")

_log = logging.getLogger("barnabas.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    headers: bool = False
    limits: FetchLimits = DEFAULT_LIMITS
    rack: str = ""
    fail_on_data_loss: bool = True
    """False skips records that are gone, and logs it."""
    timeout_s: float = 60.0
    """How long to wait for the next records, broker restarts included."""


DEFAULT_SETTINGS = ReadSettings()


def read_range(
    client: Client, wanted: OffsetRange, settings: ReadSettings = DEFAULT_SETTINGS
) -> Iterator[pa.RecordBatch]:
    """Raises DataLoss, BrokerError, BrokerUnavailable, TimeoutError, or what ``read_columns`` does."""
    return _merged(_Reader(client, wanted, settings).batches())


class Answer(NamedTuple):
    fetched: Fetched
    preferred_replica: int


class _Loss(NamedTuple):
    reason: str
    read_on_at: int


class _Reader:
    def __init__(self, client: Client, wanted: OffsetRange, settings: ReadSettings) -> None:
        self._wanted = wanted
        self._settings = settings
        self._fetcher = _Fetcher(wanted, client, settings.limits, settings.rack)

    def batches(self) -> Iterator[pa.RecordBatch]:
        position, stop = self._wanted.start, self._wanted.stop
        try:
            while position < stop:
                fetched = self._fetch(position)
                if isinstance(fetched, _Loss):
                    position = self._skip(fetched)
                    continue
                end = end_of_batches(fetched.records)
                if end is not None and position < end < stop:
                    self._fetcher.ask_ahead(end)
                while position < stop:
                    read = read_columns(
                        fetched,
                        position,
                        stop,
                        headers=self._settings.headers,
                        read_committed=self._settings.limits.read_committed,
                        max_bytes=LARGEST_BATCH_BYTES,
                    )
                    position = read.next_offset
                    if read.batch is not None:
                        yield read.batch
                    if end is None or position >= end:
                        break
        finally:
            self._fetcher.forget()

    def _fetch(self, position: int) -> Fetched | _Loss:
        """Something at ``position``, waited for as long as it takes and the settings allow."""
        deadline = time.monotonic() + self._settings.timeout_s
        backoff_s = FIRST_BACKOFF_S
        while True:
            failure: Exception
            try:
                fetched = self._fetcher.fetch(position)
                if len(fetched.records):
                    return fetched
                failure = TimeoutError(
                    f"{self._wanted.partition}: the batch reaches to offset {self._wanted.stop - 1}, but nothing came "
                    f"from offset {position} on, and the high watermark is {fetched.high_watermark}"
                )
                backoff_s = 0  # the broker has waited already
            except BrokerUnavailable as error:
                failure = error
            except BrokerError as error:
                if error.code in MOVED and (loss := self._loss(position)):
                    return loss
                if error.code not in RETRIABLE and error.code not in MOVED:
                    raise
                failure = error
            if time.monotonic() + backoff_s > deadline:
                raise failure
            if backoff_s:
                _log.warning("%s: trying again at offset %d: %s", self._wanted.partition, position, failure)
            time.sleep(backoff_s)
            backoff_s = min(max(backoff_s * 2, FIRST_BACKOFF_S), LONGEST_BACKOFF_S)

    def _loss(self, position: int) -> _Loss | None:
        """Asks what has become of the partition. None where it is as it was planned, and only its leader has moved."""
        partition, stop = self._wanted.partition, self._wanted.stop
        wanted = f"{partition}: offsets {position} to {stop - 1} are to be read"
        client = self._fetcher.client
        try:
            topic = client.load([partition.topic])[partition.topic]
            if topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or partition.partition not in topic.partitions:
                return _Loss(f"{wanted}, but the topic is gone", stop)
            if self._fetcher.topic_id not in (ZERO_UUID, topic.topic_id):
                return _Loss(f"{wanted}, but the topic was deleted and created again", stop)
            earliest = list_offsets(client, {partition: EARLIEST})[partition].offset
            latest = list_offsets(client, {partition: LATEST})[partition].offset
        except (BrokerError, BrokerUnavailable):
            return None
        if earliest <= position <= latest:
            return None
        holds = f"but the log holds offsets {earliest} to {latest - 1}" if latest > earliest else "but the log is empty"
        return _Loss(f"{wanted}, {holds}", min(stop, max(earliest, position)) if position < earliest else stop)

    def _skip(self, loss: _Loss) -> int:
        self._fetcher.forget()
        if self._settings.fail_on_data_loss:
            raise DataLoss(loss.reason)
        _log.warning("%s; reading goes on at offset %d", loss.reason, loss.read_on_at)
        return loss.read_on_at


class _Fetcher:
    """Fetches of one partition, the next of which may be asked for before the last is used up."""

    def __init__(self, wanted: OffsetRange, client: Client, limits: FetchLimits, rack: str) -> None:
        self.client = client
        self.topic_id = uuid_from_text(wanted.topic_id) if wanted.topic_id else ZERO_UUID
        self._partition = wanted.partition
        self._limits = limits
        self._rack = rack
        self._replica = -1
        """The follower to read from (KIP-392), where the leader has named one."""
        self._ahead: tuple[int, Connection, Sent] | None = None

    def ask_ahead(self, offset: int) -> None:
        """A failure here is found out when the answer is wanted."""
        try:
            self._ahead = (offset, *self._send(offset))
        except (BrokerError, BrokerUnavailable):
            self._ahead = None

    def fetch(self, offset: int) -> Fetched:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] != offset:
            ahead[1].close()
            ahead = None
        try:
            pending = ahead[1:] if ahead is not None else self._send(offset)
            answer = self._receive_hedged(pending, offset)
        except (BrokerError, BrokerUnavailable):
            self._moved()
            raise
        if answer.fetched.code:
            self._moved()
            raise BrokerError(answer.fetched.code, str(self._partition))
        if answer.preferred_replica >= 0:
            self._replica = answer.preferred_replica
        return answer.fetched

    def forget(self) -> None:
        """An answer that nobody takes would be taken for the next one."""
        if self._ahead is not None:
            self._ahead[1].close()
        self._ahead = None

    def _moved(self) -> None:
        self._replica = -1
        self.client.forget([self._partition.topic])

    def _receive_hedged(self, pending: hedge.Pending, offset: int) -> Answer:
        """What is read has been committed: an answer that does not come at once is a slow broker's."""
        after_ms = self._limits.hedge_after_ms
        if not after_ms:
            return self._receive(*pending)

        def ask_second() -> hedge.Pending | None:
            other = hedge.other_replica(self.client, self._partition, self._node())
            return None if other is None else self._send(offset, other)

        return hedge.receive(
            pending,
            self._receive,
            after_s=after_ms / 1000,
            ask_second=ask_second,
            is_good=lambda answer: not answer.fetched.code and len(answer.fetched.records) > 0,
        )

    def _send(self, offset: int, node: int | None = None) -> hedge.Pending:
        connection = self.client.node(self._node() if node is None else node)
        version = connection.version_for(FetchRequest)
        if self.topic_id == ZERO_UUID:
            version = min(version, LAST_VERSION_BY_NAME)
        partition = FetchPartition(
            partition=self._partition.partition,
            fetch_offset=offset,
            partition_max_bytes=self._limits.partition_max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self._limits.max_wait_ms,
            min_bytes=self._limits.min_bytes,
            max_bytes=self._limits.max_bytes,
            isolation_level=int(self._limits.read_committed),
            topics=[FetchTopic(topic=self._partition.topic, topic_id=self.topic_id, partitions=[partition])],
            rack_id=self._rack,
        )
        return connection, connection.send(request, version=version, wait_s=self._limits.max_wait_ms / 1000)

    def _node(self) -> int:
        if self._replica >= 0:
            return self._replica
        (leader,) = self.client.by_leader([self._partition])
        if leader < 0:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(self._partition), "the partition has no leader")
        return leader

    def _receive(self, connection: Connection, sent: Sent) -> Answer:
        reply = connection.receive(sent, FetchResponse)
        check(reply.error_code, f"fetch from {connection.address}")
        for topic in reply.responses:
            for data in topic.partitions:
                return Answer(fetched_of(self._partition, data), data.preferred_read_replica)
        return Answer(fetched_of(self._partition, PartitionData()), -1)


def end_of_batches(records: memoryview) -> int | None:
    """The offset after the last whole batch, by the headers alone; None where not one is whole."""
    size, position, last = len(records), 0, -1
    while position + 27 <= size:
        _, length = _OFFSET_AND_LENGTH.unpack_from(records, position)
        if length <= 0 or position + 12 + length > size:
            break
        last = position
        position += 12 + length
    if last < 0:
        return None
    base_offset, _ = _OFFSET_AND_LENGTH.unpack_from(records, last)
    (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, last + 23)
    return int(base_offset + delta + 1)


def _merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches put together; large ones as they are."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= SMALLEST_BATCH_ROWS or size >= SMALLEST_BATCH_BYTES:
            yield from _one(held)
            held, rows, size = [], 0, 0
    yield from _one(held)


def _one(held: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(held) <= 1:
        return held
    joined: list[pa.RecordBatch] = pa.Table.from_batches(held).combine_chunks().to_batches()
    return joined
