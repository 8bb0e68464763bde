"""Record batches to the leaders of their partitions: several requests under way to each broker, order kept.

While all goes well, requests are sent without waiting, and replies are read when a broker has enough before it. When
anything fails, nothing new is sent: all replies that are still due are read, what was not stored is sent again,
partition by partition in its old order, and only then does the stream go on. Batches with a producer id and a sequence
are stored once however often they are sent, as long as no more than five of a partition are under way (KIP-98).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.client.arrow.encoding import EncodedBatch
from barnabas.client.wire.client import Client, Retry
from barnabas.client.wire.connection import Connection, Sent
from barnabas.client.wire.data import produce_request, produced
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, ProtocolError, check
from barnabas.client.wire.transactional import LAST_PRODUCE_VERSION
from barnabas.model.errors import RETRIABLE, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.api.produce import ProduceRequest, ProduceResponse
from barnabas.wire.batch import add_sequence

MAX_IN_FLIGHT_REQUESTS = 5
"""To one broker. A broker remembers the last five batches of a producer in a partition, no more."""

MAX_IN_FLIGHT_BYTES = 32 * 1024 * 1024
"""To all brokers. Above, a reply is awaited before more is sent."""

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Batches for one broker go together up to here; one that is larger goes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    acks: int = -1
    request_timeout_ms: int = 30_000
    """How long a broker may wait for its followers."""
    delivery_timeout_s: float = 120.0
    """How long a failure may last before it is the caller's."""
    backoff_s: float = 0.1
    max_backoff_s: float = 1.0


class _Pending(NamedTuple):
    number: int
    """Grows from batch to batch."""
    place: TopicPartition
    batch: EncodedBatch

    @property
    def size(self) -> int:
        return len(self.batch.data)


class _Request(NamedTuple):
    connection: Connection
    sent: Sent
    items: list[_Pending]

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)


class _Failures:
    """What was not stored, and why the first was not."""

    __slots__ = ("items", "reason")

    def __init__(self) -> None:
        self.items: list[_Pending] = []
        self.reason: Exception | None = None

    def add(self, items: Iterable[_Pending], reason: Exception) -> None:
        self.items += items
        self.reason = self.reason or reason

    def has(self, place: TopicPartition) -> bool:
        return any(item.place == place for item in self.items)


class Producer:
    """For one thread. What it raises is final: make a new one, with a new delivery."""

    def __init__(self, client: Client, delivery: Delivery, settings: ProducerSettings) -> None:
        self._client = client
        self._delivery = delivery
        self._settings = settings
        self._in_flight: dict[int, deque[_Request]] = {}
        self._in_flight_bytes = 0
        self._count = 0
        # A broker takes any sequence of a producer that it does not know yet: the first batch must not be overtaken.
        self._known: set[TopicPartition] = set()
        self._opening: set[TopicPartition] = set()

    def send(self, topic: str, batches: Sequence[EncodedBatch]) -> None:
        """Sends the batches, in their order within a partition. Raises BrokerError, or BrokerUnavailable in the end."""
        pending: list[_Pending] = []
        for batch in batches:
            place = TopicPartition(topic, batch.partition)
            self._delivery.stamp(place, batch)
            self._count += 1
            pending.append(_Pending(self._count, place, batch))
        self._delivery.enlist(self._client, {item.place for item in pending})
        while pending:
            # A request takes one batch of a partition: the first ones now, those behind them afterwards.
            firsts = {item.place: item for item in reversed(pending)}
            pending = [item for item in pending if firsts[item.place] is not item]
            self._send_firsts(sorted(firsts.values()))

    def flush(self) -> None:
        """Waits until all that was sent is stored."""
        failures = _Failures()
        self._drain(failures)
        self._recover(failures)

    def _send_firsts(self, items: list[_Pending]) -> None:
        failures = _Failures()
        for leader, group in self._by_leader(items, failures).items():
            for part in _parts(group):
                self._make_room(leader, part, failures)
                self._send_to(leader, part, failures)
        if failures.items:
            self._drain(failures)
            self._recover(failures)

    def _by_leader(self, items: list[_Pending], failures: _Failures) -> dict[int, list[_Pending]]:
        groups: dict[int, list[_Pending]] = {}
        try:
            for item in items:
                (leader,) = self._client.by_leader([item.place])
                groups.setdefault(leader, []).append(item)
        except BrokerUnavailable as error:
            failures.add(items, error)
            return {}
        except BrokerError as error:
            if error.code not in RETRIABLE:
                raise
            failures.add(items, error)
            return {}
        for item in groups.pop(-1, []):
            text = "the partition has no leader"
            failures.add([item], BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(item.place), text))
        return groups

    def _make_room(self, leader: int, items: list[_Pending], failures: _Failures) -> None:
        queue = self._in_flight.setdefault(leader, deque())
        places = {item.place for item in items}
        while queue and (len(queue) >= MAX_IN_FLIGHT_REQUESTS or places & self._opening):
            self._receive(queue, failures)
        size = sum(item.size for item in items)
        while self._in_flight_bytes and self._in_flight_bytes + size > MAX_IN_FLIGHT_BYTES:
            self._receive(max(self._in_flight.values(), key=len), failures)

    def _send_to(self, leader: int, items: list[_Pending], failures: _Failures) -> None:
        if failures.reason is not None:  # nothing may overtake what has failed
            failures.add(items, failures.reason)
            return
        try:
            connection = self._client.node(leader)
            request, version = self._request(connection, items)
            wait_s = self._settings.request_timeout_ms / 1000
            sent = connection.send(request, version=version, wait_s=wait_s, expects_reply=self._settings.acks != 0)
        except BrokerUnavailable as error:
            failures.add(items, error)
            return
        if self._settings.acks != 0:
            made = _Request(connection, sent, items)
            self._in_flight[leader].append(made)
            self._in_flight_bytes += made.size
            self._opening |= {item.place for item in items} - self._known

    def _request(self, connection: Connection, items: list[_Pending]) -> tuple[ProduceRequest, int]:
        request, version = produce_request(self._client, connection, {item.place: item.batch.data for item in items})
        request.acks, request.timeout_ms = self._settings.acks, self._settings.request_timeout_ms
        request.transactional_id = self._delivery.transactional_id
        return request, version if request.transactional_id is None else min(version, LAST_PRODUCE_VERSION)

    def _receive(self, queue: deque[_Request], failures: _Failures) -> None:
        """The oldest reply of a broker. Raises BrokerError for what no waiting heals."""
        request = queue.popleft()
        self._in_flight_bytes -= request.size
        self._opening -= {item.place for item in request.items}
        try:
            reply = request.connection.receive(request.sent, ProduceResponse)
        except BrokerUnavailable as error:
            failures.add(request.items, error)
            return
        places = [item.place for item in request.items]
        answers = {
            answer.partition: answer for answer, _ in produced(self._client, reply, request.sent.version, places)
        }
        for item in request.items:
            if item.place not in answers:
                raise ProtocolError(f"{request.connection.address} did not answer for {item.place}")
            _, code, message = answers[item.place]
            if _is_stored(item, ErrorCode(code), message, failures):
                self._known.add(item.place)
            else:
                failures.add([item], BrokerError(code, str(item.place), message))

    def _drain(self, failures: _Failures) -> None:
        for queue in self._in_flight.values():
            while queue:
                self._receive(queue, failures)

    def _recover(self, failures: _Failures) -> None:
        """Sends again what was not stored, one batch of a partition at a time."""
        waiting: dict[TopicPartition, deque[_Pending]] = {}
        for item in sorted(failures.items):
            waiting.setdefault(item.place, deque()).append(item)
        retry = Retry(self._settings.delivery_timeout_s, self._settings.backoff_s, self._settings.max_backoff_s)
        while waiting:
            if failures.reason is not None:
                if not retry.again():
                    raise failures.reason
                self._client.forget({place.topic for place in waiting})
            failures = self._send_again([items[0] for items in waiting.values()])
            for place in [place for place in waiting if not failures.has(place)]:
                waiting[place].popleft()
                if not waiting[place]:
                    del waiting[place]

    def _send_again(self, items: list[_Pending]) -> _Failures:
        failures = _Failures()
        for leader, group in self._by_leader(items, failures).items():
            self._in_flight.setdefault(leader, deque())
            for part in _parts(group):
                only = _Failures()
                self._send_to(leader, part, only)
                self._drain(only)
                if only.reason is not None:
                    failures.add(only.items, only.reason)
        return failures


def _is_stored(item: _Pending, code: ErrorCode, message: str | None, failures: _Failures) -> bool:
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return True
    # Behind a batch that is to be sent again it came too early; else the broker has lost what it had.
    is_early = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and failures.has(item.place)
    if code in RETRIABLE or is_early:
        return False
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        message = (
            f"a batch of {item.size} bytes ({item.batch.record_count} records) is above the topic's max.message.bytes: "
            "kafka.max.request.size limits batches of several records"
        )
    raise BrokerError(code, str(item.place), message)


def _parts(items: list[_Pending]) -> Iterator[list[_Pending]]:
    """Cut into requests that are not too large."""
    part: list[_Pending] = []
    size = 0
    for item in items:
        if part and size + item.size > MAX_REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part


_NOBODY = -1
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class _Identity:
    """A producer id and how far it has counted in each partition."""

    __slots__ = ("producer_epoch", "producer_id", "sequences")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences: dict[TopicPartition, int] = {}


_Key: TypeAlias = tuple[int, str | None, str]

_idle: dict[_Key, _Identity] = {}
"""Of tasks of this process that ended well. A broker remembers every producer for a day, in each partition: a stream
with a new one for every task of every micro-batch would fill its memory."""


class Delivery:
    """Who sends the records of a task, and under which numbers.

    An idempotent task stores each batch once, since retries find their sequence used; a task that runs again writes its
    records again. The others cannot tell a retry from a new batch.
    """

    transactional_id: str | None = None

    def __init__(self, bootstrap_servers: str, *, is_idempotent: bool) -> None:
        self.is_idempotent = is_idempotent
        self._bootstrap_servers = bootstrap_servers
        self._key: _Key | None = None
        self._identity = _Identity(_NOBODY, _NOBODY)

    def begin(self, client: Client) -> None:
        """Before the first batch, on the executor. Raises BrokerError."""
        if not self.is_idempotent:
            return
        client.node_ids()
        self._key = (os.getpid(), client.metadata.cluster_id, self._bootstrap_servers)
        # Taken out while it is in use: after a failure nobody knows how far its sequences have come.
        self._identity = _idle.pop(self._key) if self._key in _idle else _new_identity(client)

    def enlist(self, client: Client, places: set[TopicPartition]) -> None:
        """Before records go to these partitions. Nothing to do without a transaction."""

    def stamp(self, place: TopicPartition, batch: EncodedBatch) -> None:
        """Gives a batch its producer and its sequence. Once for each batch, in the order of a partition."""
        identity, sequence = self._identity, _NOBODY
        if self.is_idempotent:
            sequence = identity.sequences.get(place, 0)
            identity.sequences[place] = add_sequence(sequence, batch.record_count)
        batch.stamp(identity.producer_id, identity.producer_epoch, sequence)

    def end(self) -> None:
        """When all batches are stored. Not called where the task fails."""
        if self._key is not None:
            _idle[self._key] = self._identity
            self._key = None


def _new_identity(client: Client) -> _Identity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
    reply = client.call(request, InitProducerIdResponse, codes=lambda reply: [reply.error_code])
    if reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        text = "idempotent writing is not allowed here; kafka.enable.idempotence=false does without it"
        raise BrokerError(reply.error_code, "producer id", text)
    check(reply.error_code, "producer id")
    return _Identity(reply.producer_id, reply.producer_epoch)
