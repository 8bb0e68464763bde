"""Clients that read under read_committed, as Kafka's consumers do.

A Fetch response names the aborted transactions in its range by producer id and first offset. Batches of such a producer
are skipped from there on, until its abort marker.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from barnabas.model.errors import ErrorCode
from barnabas.sim.client import PASSING, PAUSE_MS, Place, RoutingClient, World
from barnabas.sim.history import Violation
from barnabas.sim.transaction_history import TransactionHistory
from barnabas.wire.api import fetch
from barnabas.wire.batch import BatchHeader, iterate
from barnabas.wire.records import ControlType, decode_batch, read_control_type

READ_COMMITTED = 1
MAX_BYTES = (300, 2000, 1 << 20)
"""Of a partition in a response: small ones begin and end within transactions."""
BEGIN_ANEW_CHANCE = 0.02
IDLE_MS = (100.0, 1000.0)
"""Between two fetches of a reader when there was nothing to read."""


class Chunk(NamedTuple):
    """What one fetch returned of one partition."""

    place: Place
    start: int
    end: int
    """The next offset to fetch."""
    values: dict[int, bytes]


def filter_aborted(
    content: bytes, aborted: Iterable[fetch.AbortedTransaction], start: int
) -> tuple[dict[int, bytes], int]:
    """Committed values by offset from ``start`` on, and the next offset to fetch."""
    waiting = deque(sorted(aborted, key=lambda each: each.first_offset))
    producers: set[int] = set()
    values: dict[int, bytes] = {}
    for position, header in iterate(content):
        while waiting and waiting[0].first_offset <= header.last_offset:
            producers.add(waiting.popleft().producer_id)
        if header.is_control:
            if _is_abort(content, position):
                producers.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in producers):
            values |= {record.offset: bytes(record.value or b"") for record in decode_batch(content, position)}
        start = max(start, header.next_offset)
    return values, start


def _is_abort(content: bytes, position: int) -> bool:
    return read_control_type(decode_batch(content, position)[0]) is ControlType.ABORT


class CommittedClient(RoutingClient):
    """Fetches under read_committed from the positions that it has."""

    max_bytes: tuple[int, ...] = MAX_BYTES

    def __init__(
        self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]], book: TransactionHistory
    ) -> None:
        super().__init__(world, name, rng, topics)
        self.book = book
        self.positions: dict[Place, int] = {}
        self._turn = 0
        """Of which leader it is; one that has something is asked again."""

    def fetch_committed(self, then: Callable[[list[Chunk]], None]) -> None:
        """From one leader; the positions move behind what ``then`` gets."""
        leaders = sorted({leader for place, leader in self.leaders.items() if place in self.positions})
        is_known = self.leaders.keys() >= self.positions.keys()
        if not leaders or (not is_known and self.random.random() < 0.5):
            self.refresh(lambda: then([]))
            return
        leader = leaders[self._turn % len(leaders)]
        asked = {place: offset for place, offset in self.positions.items() if self.leaders.get(place) == leader}

        def fetched(response: Any) -> None:
            chunks = self._fetched(response, asked)
            self._turn += not any(chunk.end > chunk.start for chunk in chunks)
            then(chunks)

        self.call(self._request(asked), 11, fetched, leader)

    def _request(self, asked: dict[Place, int]) -> fetch.FetchRequest:
        max_bytes = self.random.choice(self.max_bytes)
        by_topic: dict[str, list[fetch.FetchPartition]] = {}
        for (topic, number), offset in asked.items():
            leader_epoch = self.leader_epochs[topic, number]
            wanted = fetch.FetchPartition(number, leader_epoch, offset, partition_max_bytes=max_bytes)
            by_topic.setdefault(topic, []).append(wanted)
        topics = [fetch.FetchTopic(topic, partitions=partitions) for topic, partitions in by_topic.items()]
        return fetch.FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=READ_COMMITTED, topics=topics
        )

    def _fetched(self, response: Any, asked: dict[Place, int]) -> list[Chunk]:
        if response is None:
            self.leaders.clear()
        chunks = []
        for topic in response.responses if response is not None else ():
            for data in topic.partitions:
                place = topic.topic, data.partition_index
                code = ErrorCode(data.error_code)
                if code is ErrorCode.NONE:
                    chunks.append(self._take(place, asked[place], data))
                elif code in PASSING:
                    self.leaders.pop(place, None)
                else:
                    raise Violation(f"{self.name} is answered {code.name} at {asked[place]} of {place}")
        return chunks

    def _take(self, place: Place, start: int, data: fetch.PartitionData) -> Chunk:
        content = bytes(data.records or b"")  # type: ignore[arg-type]
        for _, header in iterate(content):
            self._check_stable(place, header, data)
        found, end = filter_aborted(content, data.aborted_transactions or (), start)
        values = {offset: value for offset, value in found.items() if offset >= start}
        self.positions[place] = end
        return Chunk(place, start, end, values)

    def _check_stable(self, place: Place, header: BatchHeader, data: fetch.PartitionData) -> None:
        if header.last_offset >= data.last_stable_offset:
            raise Violation(
                f"{self.name} gets offset {header.last_offset} of {place}, and the last stable offset is "
                f"{data.last_stable_offset}"
            )


class CommittedReader(CommittedClient):
    """Reads every partition, and now and then begins anew: the same range has to have the same records."""

    def __init__(
        self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]], book: TransactionHistory
    ) -> None:
        super().__init__(world, name, rng, topics, book)
        self.positions = {(topic, number): 0 for topic, count in topics for number in range(count)}
        self.fetched = 0
        self.begins_anew = False
        """With its next fetch."""

    def run(self) -> None:
        if self.begins_anew or (self.random.random() < BEGIN_ANEW_CHANCE and not self.is_done):
            self.positions = dict.fromkeys(self.positions, 0)
            self.begins_anew = False
        self.fetch_committed(self._read)

    def _read(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self.book.read_range(self.name, chunk.place, chunk.start, chunk.end, chunk.values)
            self.fetched += len(chunk.values)
        has_moved = any(chunk.end > chunk.start for chunk in chunks)
        delay_ms = self.random.uniform(*(PAUSE_MS if has_moved else IDLE_MS))
        self.world.scheduler.after(delay_ms, self.run)
