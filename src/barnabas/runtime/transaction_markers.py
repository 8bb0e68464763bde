"""Writes the markers of decided transactions to the leaders of their partitions, again and again until each has them.

Every broker has a queue and one request in flight, which takes all that has gathered meanwhile: a broker that is away
holds up nobody else's markers. A partition that moves is found at its new leader; one that is deleted needs no marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from barnabas.core.txn.marker import EndMarker
from barnabas.core.txn.records import by_topic
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_LEADER, TopicPartition
from barnabas.model.ports import Clock, Timer
from barnabas.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

LANE = "markers"
TIMEOUT_MS = 10_000
BACKOFF_MS = 100
"""Before markers that were not written, or have no leader to go to, are tried again."""

_NOT_NEEDED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
"""The partition has seen a later epoch: that transaction is not open there, or the marker is there already."""


class ToBroker(Protocol):
    def __call__(self, node_id: int, lane: str, request: Any, timeout_ms: int, then: Callable[[Any], None]) -> None:
        """``then`` gets the response of a broker, perhaps this very one, or an ApiError."""


class MarkerJob:
    """One transaction whose markers are being written."""

    __slots__ = ("_then", "is_cancelled", "marker", "remaining")

    def __init__(self, marker: EndMarker, partitions: Iterable[TopicPartition], then: Callable[[], None]) -> None:
        self.marker = marker
        self.remaining = dict.fromkeys(partitions)
        self.is_cancelled = False
        self._then = then

    def cancel(self) -> None:
        """The coordinator is another broker now: it sends them itself."""
        self.is_cancelled = True

    def written(self, partition: TopicPartition) -> None:
        if self.remaining.pop(partition, True) is None and not self.remaining and not self.is_cancelled:
            self._then()


_Due = tuple[MarkerJob, TopicPartition]


class MarkerSender:
    def __init__(self, *, leader_of: Callable[[TopicPartition], int | None], to_broker: ToBroker, clock: Clock) -> None:
        self._leader_of = leader_of
        """None for a partition that is deleted."""
        self._to_broker = to_broker
        self._clock = clock
        self._queues: dict[int, list[_Due]] = {}
        self._in_flight: set[int] = set()
        self._later: list[_Due] = []
        self._timer: Timer | None = None
        self._closed = False

    def send(self, marker: EndMarker, partitions: Iterable[TopicPartition], then: Callable[[], None]) -> MarkerJob:
        """Calls ``then`` when every partition has the marker, or is gone."""
        job = MarkerJob(marker, partitions, then)
        if not job.remaining:
            then()
        else:
            self._enqueue([(job, partition) for partition in job.remaining])
        return job

    def _enqueue(self, due: list[_Due]) -> None:
        for job, partition in due:
            if job.is_cancelled:
                continue
            leader = self._leader_of(partition)
            if leader is None:
                job.written(partition)
            elif leader == NO_LEADER:
                self._retry_later([(job, partition)])
            else:
                self._queues.setdefault(leader, []).append((job, partition))
        for node_id in list(self._queues):
            self._send_to(node_id)

    def _retry_later(self, due: list[_Due]) -> None:
        self._later += due
        if self._timer is None and not self._closed:
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + BACKOFF_MS, self._retry)

    def _retry(self) -> None:
        self._timer = None
        due, self._later = self._later, []
        self._enqueue(due)

    def _send_to(self, node_id: int) -> None:
        if node_id in self._in_flight or self._closed:
            return
        due = [each for each in self._queues.pop(node_id, ()) if not each[0].is_cancelled]
        if not due:
            return
        self._in_flight.add(node_id)
        self._to_broker(
            node_id, LANE, _request(due), TIMEOUT_MS, lambda response: self._answered(node_id, due, response)
        )

    def _answered(self, node_id: int, due: list[_Due], response: WriteTxnMarkersResponse | ApiError) -> None:
        self._in_flight.discard(node_id)
        if self._closed:
            return
        codes = {} if isinstance(response, ApiError) else _codes(response)
        again = []
        for job, partition in due:
            code = codes.get((job.marker.producer_id, partition), ErrorCode.NETWORK_EXCEPTION)
            if code is ErrorCode.NONE or code in _NOT_NEEDED:
                job.written(partition)
            elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                job.cancel()
            else:
                again.append((job, partition))
        if again:
            self._retry_later(again)
        self._send_to(node_id)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


def _request(due: list[_Due]) -> WriteTxnMarkersRequest:
    jobs: dict[MarkerJob, list[TopicPartition]] = {}
    for job, partition in due:
        jobs.setdefault(job, []).append(partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=job.marker.producer_id,
                producer_epoch=job.marker.producer_epoch,
                transaction_result=job.marker.committed,
                topics=[WritableTxnMarkerTopic(topic, numbers) for topic, numbers in by_topic(partitions).items()],
                coordinator_epoch=job.marker.coordinator_epoch,
                transaction_version=job.marker.transaction_version,
            )
            for job, partitions in jobs.items()
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, result.partition_index)): ErrorCode(result.error_code)
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    }
