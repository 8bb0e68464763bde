"""Fetch 4–18: returns record batches as file ranges; parks the request until there are enough bytes.

Incremental sessions: KIP-227. Leader epochs: KIP-320. Truncation by fetched epoch: KIP-595. Topic ids: KIP-516.
Leader hints: KIP-951. Consumers read from followers, and are sent to one in their rack: KIP-392.
"""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.fetch_sessions import FetchContext, Settled, Target, topic_of
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.partition import Partition
from barnabas.runtime.pipeline import Request
from barnabas.runtime.purgatory import DelayedFetch
from barnabas.wire.api.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

READ_COMMITTED = 1
FIRST_FROM_FOLLOWERS = 11
SCRAP_BYTES = 64 << 10
"""A reply is full where less than this is left of its limit, or less than a sixteenth of a small one: to find that no
batch of a partition fits costs as much as to find those that do."""


def handle(broker: Broker, exchange: Request, request: FetchRequest) -> FetchResponse | None:
    try:
        context = broker.sessions.open(request, exchange.version)
    except ApiError as problem:
        return FetchResponse(error_code=problem.code)
    fetch = _Fetch(broker, exchange, request, context)
    fetch.read()
    if fetch.is_enough():
        return fetch.response()
    fetch.park()
    return None


class _Fetch:
    """One fetch, from its first read of the partitions to its response."""

    __slots__ = (
        "_broker",
        "_committed_only",
        "_context",
        "_exchange",
        "_follower",
        "_follower_epoch",
        "_request",
        "_results",
        "_settled",
        "_total",
        "_urgent",
    )

    def __init__(self, broker: Broker, exchange: Request, request: FetchRequest, context: FetchContext) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._context = context
        self._follower = max(request.replica_id, request.replica_state.replica_id)
        """The broker that fetches as a follower; -1 for a consumer."""
        self._follower_epoch = request.replica_state.replica_epoch
        self._committed_only = request.isolation_level == READ_COMMITTED and self._follower < 0
        self._results: list[tuple[Target, PartitionData, Partition | None]] = []
        self._settled: list[Partition] = []
        """Partitions of a follower that has nothing to fetch from them."""
        self._total = 0
        self._urgent = False
        """An error, or something else that the client should learn now."""

    # Reading

    def read(self) -> None:
        limit = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        full = limit - min(limit >> 4, SCRAP_BYTES)
        self._results.clear()
        self._settled.clear()
        self._total = 0
        now_ms = self._broker.clock.monotonic_ms()
        for target in self._context.targets:
            if target.settled is not None and target.settled.holds(target, self._follower, now_ms):
                self._settled.append(target.settled.partition)
                continue
            data = PartitionData(target.number, aborted_transactions=None, records=b"")
            partition = None
            try:
                partition = self._find(target)
                left = limit - self._total if self._total <= full else 0
                self._total += self._read_partition(partition, target, data, left)
            except ApiError as problem:
                self._refuse(data, partition, problem)
            self._results.append((target, data, partition))

    def _find(self, target: Target) -> Partition:
        partitions = self._broker.partitions
        if isinstance(target.topic, str):
            partition = partitions.get(target.topic, target.number)
        else:
            partition = partitions.get_by_id(target.topic, target.number)
            if partition is None and target.topic not in self._broker.image.topics_by_id:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def _read_partition(self, partition: Partition, target: Target, data: PartitionData, left: int) -> int:
        wanted = target.wanted
        if self._follower < 0 and self._exchange.version >= FIRST_FROM_FOLLOWERS:
            partition.check_replica(wanted.current_leader_epoch)
        else:
            partition.check_leader(wanted.current_leader_epoch)
        data.high_watermark = partition.high_watermark
        data.last_stable_offset = partition.last_stable_offset
        data.log_start_offset = partition.log_start_offset
        if wanted.last_fetched_epoch >= 0 and self._diverges(partition, target, data):
            return 0
        max_bytes = min(wanted.partition_max_bytes, left)
        first = self._total == 0
        if self._follower >= 0:
            return self._read_for_follower(partition, target, data, max_bytes, first)
        if self._committed_only:
            data.aborted_transactions = []
        if self._request.rack_id and self._sends_elsewhere(partition, wanted.fetch_offset, data):
            return 0
        if wanted.fetch_offset == partition.high_watermark or (max_bytes <= 0 and not first):
            return 0
        result = partition.read(wanted.fetch_offset, max_bytes, committed_only=self._committed_only, minimum_one=first)
        if result.aborted:
            data.aborted_transactions = [
                AbortedTransaction(producer_id, offset) for producer_id, offset in result.aborted
            ]
        if result.records is None:
            return 0
        data.records = result.records
        return result.records.size

    def _sends_elsewhere(self, partition: Partition, offset: int, data: PartitionData) -> bool:
        """A consumer in another rack than this leader is sent to an in-sync replica of its own rack."""
        if not self._broker.settings.selects_by_rack or partition.leader is None:
            return False
        replica = self._broker.replica_in_rack(self._request.rack_id, partition.leader, offset)
        if replica is None:
            return False
        data.preferred_read_replica = replica
        self._urgent = True
        return True

    def _read_for_follower(
        self, partition: Partition, target: Target, data: PartitionData, max_bytes: int, first: bool
    ) -> int:
        """To the log's end. The fetch says that the follower holds all before its offset."""
        offset = target.wanted.fetch_offset
        if not partition.log_start_offset <= offset <= partition.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        eligible = self._broker.may_be_in_sync(self._follower, self._follower_epoch)
        partition.on_follower_fetch(self._follower, self._follower_epoch, offset, eligible=eligible)
        data.high_watermark = partition.high_watermark
        if offset == partition.log_end_offset:
            leader = partition.check_leader()
            target.settled = Settled(partition, leader, leader.followers[self._follower])
            return 0
        if max_bytes <= 0 and not first:
            return 0
        throttle = self._broker.throttle
        if throttle.holds_back(partition, self._follower):
            return 0
        result = partition.read_as_follower(offset, max_bytes, minimum_one=first)
        if result.records is None:
            return 0
        data.records = result.records
        throttle.on_sent(partition, self._follower, result.records.size)
        return result.records.size

    def _diverges(self, partition: Partition, target: Target, data: PartitionData) -> bool:
        """The reader's last epoch ended earlier here: it holds records that were lost (KIP-595, KIP-320)."""
        wanted = target.wanted
        at_most = partition.log_end_offset
        if wanted.last_fetched_epoch == partition.leader_epoch and wanted.fetch_offset <= at_most:
            return False
        known_epoch, end_offset = partition.end_of_epoch(wanted.last_fetched_epoch)
        if end_offset < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if known_epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(known_epoch, end_offset)
        self._urgent = True
        return True

    def _refuse(self, data: PartitionData, partition: Partition | None, problem: ApiError) -> None:
        self._urgent = True
        data.error_code = problem.code
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        if partition is None:
            return
        if self._follower >= 0 and problem.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            data.log_start_offset = partition.log_start_offset  # where the follower has to start anew
        if problem.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            topic = self._broker.image.topics_by_id.get(partition.topic_id)
            if topic is not None:
                state = topic.partitions[partition.name.partition]
                leader = self._broker.leader_of(topic, partition.name.partition)
                data.current_leader = LeaderIdAndEpoch(leader, state.leader_epoch)

    # Answering

    def is_enough(self) -> bool:
        return (
            self._urgent
            or self._total >= self._request.min_bytes
            or self._request.max_wait_ms <= 0
            or not (self._results or self._settled)
        )

    def park(self) -> None:
        waiting = [(partition, target.wanted.fetch_offset) for target, _, partition in self._results if partition]
        waiting += [(partition, 0) for partition in self._settled]
        deadline_ms = self._broker.clock.monotonic_ms() + self._request.max_wait_ms
        delayed = DelayedFetch(
            waiting,
            self._request.min_bytes - self._total,
            deadline_ms,
            self._broker.clock,
            self._finish,
            committed_only=self._committed_only,
            by_follower=self._follower >= 0,
        )
        self._exchange.abandoned = delayed.cancel
        if self._follower >= 0:
            self._exchange.overtaken = delayed.disturbed  # it has begun to follow another partition

    def _finish(self) -> None:
        self.read()
        self._exchange.reply(self.response())

    def response(self) -> FetchResponse:
        context = self._context
        results = self._results
        if context.session is not None:
            if context.incremental:
                results = [result for result in results if self._is_news(result[0], result[1])]
            for target, data, _ in results:
                target.high_watermark, target.log_start_offset = data.high_watermark, data.log_start_offset
            context.session.to_the_end(target for target, data, _ in results if data.records)
        response = FetchResponse(session_id=context.session_id, responses=_grouped(results))
        if self._urgent and self._exchange.version >= 16:
            response.node_endpoints = self._leader_endpoints()
        return response

    @staticmethod
    def _is_news(target: Target, data: PartitionData) -> bool:
        return bool(
            data.error_code
            or data.records
            or data.high_watermark != target.high_watermark
            or data.log_start_offset != target.log_start_offset
            or data.diverging_epoch.end_offset >= 0
        )

    def _leader_endpoints(self) -> list[NodeEndpoint]:
        leaders = sorted({data.current_leader.leader_id for _, data, _ in self._results})
        found = ((node, self._broker.endpoint(node, self._exchange.listener)) for node in leaders)
        return [NodeEndpoint(node, endpoint.host, endpoint.port) for node, endpoint in found if endpoint is not None]


def _grouped(results: list[tuple[Target, PartitionData, Partition | None]]) -> list[FetchableTopicResponse]:
    """Neighbours of the same topic share an entry; order is kept."""
    topics: list[FetchableTopicResponse] = []
    last: str | bytes | None = None
    for target, data, _ in results:
        if target.topic != last or not topics:
            last = target.topic
            topics.append(FetchableTopicResponse(*topic_of(target), []))
        topics[-1].partitions.append(data)
    return topics
