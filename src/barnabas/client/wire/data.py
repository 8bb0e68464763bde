"""Produces and fetches record batches as bytes; decoding is left to the caller.

A fetch sends to all leaders first and reads the replies afterwards, so that the waits overlap. It returns views into
the replies. It uses no fetch sessions: each request names all its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.client.wire import hedge
from barnabas.client.wire.client import Client
from barnabas.client.wire.connection import Connection, Sent
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, ProtocolError, check
from barnabas.client.wire.routed import Answer, ask_leaders
from barnabas.model.errors import RETRIABLE, ErrorCode
from barnabas.model.ids import ZERO_UUID, TopicPartition
from barnabas.wire.api import fetch as fetch_api
from barnabas.wire.api import produce as produce_api

LAST_VERSION_BY_NAME = 12
"""Of Fetch and of Produce alike: above, topics go by their ids (KIP-516)."""


class Fetched(NamedTuple):
    partition: TopicPartition
    code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    """Whole batches, the last one perhaps cut off. The first may begin before the offset that was asked for."""
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions, for read_committed."""


class OffsetRange(NamedTuple):
    """start <= offset < stop of a partition."""

    partition: TopicPartition
    start: int
    stop: int
    topic_id: str = ""
    """Empty where the broker knows no topic ids."""

    @property
    def size(self) -> int:
        return self.stop - self.start


class Produced(NamedTuple):
    base_offset: int
    """-1 with acks 0: unknown."""
    log_append_time_ms: int
    log_start_offset: int


class FetchLimits(NamedTuple):
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    read_committed: bool = False
    hedge_after_ms: int = 0
    """A leader that is later than this gets company: an in-sync follower is asked too. 0: never."""


DEFAULT_LIMITS = FetchLimits()


def fetch(client: Client, offsets: Mapping[TopicPartition, int], limits: FetchLimits = DEFAULT_LIMITS) -> list[Fetched]:
    """What follows each offset, as far as there is any within the limits.

    A partition that is between leaders is left out this time and asked for again by the caller's next fetch; only
    where all of them are does this wait. Raises BrokerError for what waiting does not heal: OFFSET_OUT_OF_RANGE.
    """
    retry = client.retry()
    while True:
        fetched, failures = _fetch_once(client, offsets, limits)
        for failure in failures:
            if isinstance(failure, BrokerError) and failure.code not in RETRIABLE:
                raise failure
        if fetched or not failures:
            return fetched
        if not retry.again():
            raise failures[0]


def _fetch_once(
    client: Client, offsets: Mapping[TopicPartition, int], limits: FetchLimits
) -> tuple[list[Fetched], list[Exception]]:
    sent: list[tuple[int, list[TopicPartition], hedge.Pending]] = []
    failures: list[Exception] = []
    for leader, group in client.by_leader(offsets).items():
        if leader < 0:
            failures.append(BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(group[0]), "the partition has no leader"))
            continue
        try:
            wanted = {item: offsets[item] for item in group}
            sent.append((leader, group, _send_fetch(client, client.node(leader), wanted, limits)))
        except BrokerUnavailable as error:
            failures.append(error)
    found: list[Fetched] = []
    for leader, group, pending in sent:
        try:
            found += _receive_hedged(client, leader, {item: offsets[item] for item in group}, limits, pending)
        except BrokerUnavailable as error:
            failures.append(error)
    failures += [BrokerError(item.code, str(item.partition)) for item in found if item.code]
    if failures:
        client.forget({partition.topic for partition in offsets})
    return [item for item in found if not item.code], failures


def _receive_hedged(
    client: Client, leader: int, offsets: Mapping[TopicPartition, int], limits: FetchLimits, pending: hedge.Pending
) -> list[Fetched]:
    def read(connection: Connection, sent: Sent) -> list[Fetched]:
        return _receive_fetch(client, connection, sent, offsets)

    def ask_second() -> hedge.Pending | None:
        """Only where one node has all of the partitions, as it mostly does."""
        others = {hedge.other_replica(client, partition, leader) for partition in offsets}
        other = others.pop()
        if others or other is None:
            return None
        return _send_fetch(client, client.node(other), offsets, limits)

    if not limits.hedge_after_ms:
        return read(*pending)
    return hedge.receive(
        pending,
        read,
        after_s=(limits.max_wait_ms + limits.hedge_after_ms) / 1000,
        ask_second=ask_second,
        is_good=lambda found: all(not item.code for item in found) and any(item.records for item in found),
    )


def _send_fetch(
    client: Client, connection: Connection, offsets: Mapping[TopicPartition, int], limits: FetchLimits
) -> hedge.Pending:
    version = connection.version_for(fetch_api.FetchRequest)
    topics: dict[str, fetch_api.FetchTopic] = {}
    for item, offset in offsets.items():
        topic = topics.get(item.topic)
        if topic is None:
            topic_id = client.topic(item.topic).topic_id
            version = _version_for(version, topic_id)
            topic = topics[item.topic] = fetch_api.FetchTopic(topic=item.topic, topic_id=topic_id)
        topic.partitions.append(
            fetch_api.FetchPartition(
                partition=item.partition, fetch_offset=offset, partition_max_bytes=limits.partition_max_bytes
            )
        )
    request = fetch_api.FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(limits.read_committed),
        topics=list(topics.values()),
    )
    return connection, connection.send(request, version=version, wait_s=limits.max_wait_ms / 1000)


def _receive_fetch(
    client: Client, connection: Connection, sent: Sent, offsets: Mapping[TopicPartition, int]
) -> list[Fetched]:
    reply = connection.receive(sent, fetch_api.FetchResponse)
    check(reply.error_code, f"fetch from {connection.address}")
    names = {client.topic(item.topic).topic_id: item.topic for item in offsets}
    found: list[Fetched] = []
    for topic in reply.responses:
        name = names.get(topic.topic_id) if sent.version > LAST_VERSION_BY_NAME else topic.topic
        if name is None:
            raise ProtocolError(f"{connection.address} answered for a topic that was not asked for")
        found += [fetched_of(TopicPartition(name, data.partition_index), data) for data in topic.partitions]
    return found


def fetched_of(partition: TopicPartition, data: fetch_api.PartitionData) -> Fetched:
    """One partition of a fetch response."""
    records = data.records
    view = memoryview(records) if isinstance(records, (bytes, bytearray, memoryview)) else memoryview(b"")
    aborted = tuple((item.producer_id, item.first_offset) for item in data.aborted_transactions or ())
    return Fetched(
        partition, data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset, view, aborted
    )


def produce(
    client: Client,
    batches: Mapping[TopicPartition, bytes | bytearray | memoryview],
    *,
    acks: int = -1,
    timeout_ms: int = 20_000,
) -> dict[TopicPartition, Produced]:
    """Appends an encoded batch to each partition.

    At least once: what was lost on the way is sent again. Batches with a producer id and sequence are stored once.
    """

    def ask(connection: Connection, group: list[TopicPartition]) -> Iterable[tuple[Answer, Produced]]:
        request, version = produce_request(client, connection, {item: batches[item] for item in group})
        request.acks, request.timeout_ms = acks, timeout_ms
        sent = connection.send(request, version=version, wait_s=timeout_ms / 1000, expects_reply=acks != 0)
        if acks == 0:
            return [(Answer(item, 0), Produced(-1, -1, -1)) for item in group]
        return produced(client, connection.receive(sent, produce_api.ProduceResponse), sent.version, group)

    return ask_leaders(client, batches, ask)


def produce_request(
    client: Client, connection: Connection, batches: Mapping[TopicPartition, bytes | bytearray | memoryview]
) -> tuple[produce_api.ProduceRequest, int]:
    """With the version for it; acks and time-out are the caller's."""
    version = connection.version_for(produce_api.ProduceRequest)
    topics: dict[str, produce_api.TopicProduceData] = {}
    for item, batch in batches.items():
        topic = topics.get(item.topic)
        if topic is None:
            topic_id = client.topic(item.topic).topic_id
            version = _version_for(version, topic_id)
            topic = topics[item.topic] = produce_api.TopicProduceData(name=item.topic, topic_id=topic_id)
        topic.partition_data.append(produce_api.PartitionProduceData(item.partition, batch))
    return produce_api.ProduceRequest(topic_data=list(topics.values())), version


def produced(
    client: Client, reply: produce_api.ProduceResponse, version: int, group: Iterable[TopicPartition]
) -> Iterable[tuple[Answer, Produced]]:
    names = {client.topic(item.topic).topic_id: item.topic for item in group}
    for topic in reply.responses:
        name = names.get(topic.topic_id, "") if version > LAST_VERSION_BY_NAME else topic.name
        for part in topic.partition_responses:
            answer = Answer(TopicPartition(name, part.index), part.error_code, part.error_message)
            yield answer, Produced(part.base_offset, part.log_append_time_ms, part.log_start_offset)


def _version_for(version: int, topic_id: bytes) -> int:
    return version if topic_id != ZERO_UUID else min(version, LAST_VERSION_BY_NAME)
