"""Produce 3–13: appends record batches.

Advertised from version 0, or older librdkafka stops compressing; versions below 3 carry message sets of the old formats
and are refused. Idempotence: KIP-98, KIP-360. Transactions: KIP-98, KIP-890. Error details: KIP-467. Leader hints:
KIP-951. Topic ids: KIP-516.
"""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.transacting import unverified
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import INTERNAL_TOPICS
from barnabas.runtime.partition import Partition
from barnabas.runtime.pipeline import Request
from barnabas.runtime.purgatory import DelayedProduce
from barnabas.runtime.transaction_verification import Claim
from barnabas.wire import header, known_produce
from barnabas.wire.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.batch import codec_number, is_transactional, producer_of
from barnabas.wire.compression import Codec

ALL = -1
FIRST_WITH_ZSTD = 7
"""KIP-110: a consumer that asks with an older Fetch could not read it."""

FIRST_WITH_ABORTABLE = 11
"""TRANSACTION_ABORTABLE (KIP-890)."""
FIRST_WITH_ADDING = 12
"""The leader adds partitions to the transaction by itself (KIP-890)."""

MAX_KNOWN_PREFIXES = 1024
"""Of one connection."""


def handle(broker: Broker, exchange: Request, request: ProduceRequest) -> ProduceResponse | None:
    appends = _Appends(broker, exchange, request)
    for topic in request.topic_data:
        appends.add(topic)
    return appends.end()


class _Appends:
    """One request: its answers so far, and what they wait for.

    A batch that begins a transaction is appended when the transaction's coordinator has confirmed it.
    """

    def __init__(self, broker: Broker, exchange: Request, request: ProduceRequest) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._response = ProduceResponse([])
        self._waits: list[tuple[PartitionProduceResponse, Partition, int]] = []
        self._unverified = 0
        self._is_read = False
        """All batches of the request have been looked at."""

    def add(self, topic: TopicProduceData) -> None:
        answers = []
        for data in topic.partition_data:
            answer = PartitionProduceResponse(data.index)
            answers.append(answer)
            partition = None
            try:
                partition = _find(self._broker, self._exchange, self._request, topic, data)
                _check_in_sync(partition, self._request.acks)
                if data.records is None:
                    raise ApiError(ErrorCode.INVALID_RECORD, "Produce requests must carry a record batch")
                batch: memoryview = data.records  # type: ignore[assignment]  # always a view into the buffer
                _check_codec(batch, self._exchange.version)
                if is_transactional(batch):
                    self._append_transactional(partition, batch, answer)
                else:
                    self._append(partition, batch, answer)
            except ApiError as problem:
                self._refuse(partition, answer, problem)
        self._response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))

    def _append(
        self, partition: Partition, batch: memoryview, answer: PartitionProduceResponse, guard: object = None
    ) -> None:
        appended = partition.append(batch, self._broker.clock.now_ms(), guard=guard)
        answer.base_offset = appended.first_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = appended.log_start_offset
        acks = self._request.acks
        reached = partition.high_watermark if acks == ALL else partition.durable_end
        if appended.last_offset >= reached and acks:
            self._waits.append((answer, partition, appended.last_offset))

    def _append_transactional(self, partition: Partition, batch: memoryview, answer: PartitionProduceResponse) -> None:
        if self._request.transactional_id is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a batch of a transaction without an id")
        claim = self._claim(self._request.transactional_id, batch)
        verifier = self._broker.verifier
        if not verifier.needs_answer(partition, claim):
            guard = None if claim.is_checked else partition.begin_verification(claim.producer_id, claim.producer_epoch)
            self._append(partition, batch, answer, guard)
            return
        kept = memoryview(bytearray(batch))  # the buffer is used again before the coordinator answers
        self._unverified += 1
        verifier.verify(partition, claim, lambda outcome: self._verified(partition, kept, answer, outcome))

    def _claim(self, transactional_id: str, batch: memoryview) -> Claim:
        adds = self._exchange.version >= FIRST_WITH_ADDING
        is_checked = adds or self._broker.settings.transaction_partition_verification_enable
        return Claim(transactional_id, *producer_of(batch), adds=adds, is_checked=is_checked)

    def _verified(
        self, partition: Partition, batch: memoryview, answer: PartitionProduceResponse, outcome: object | ApiError
    ) -> None:
        try:
            if isinstance(outcome, ApiError):
                knows_abortable = self._exchange.version >= FIRST_WITH_ABORTABLE
                raise unverified(outcome, knows_abortable=knows_abortable, otherwise=ErrorCode.NOT_ENOUGH_REPLICAS)
            self._append(partition, batch, answer, outcome)
        except ApiError as problem:
            self._refuse(partition, answer, problem)
        self._unverified -= 1
        if self._is_read and not self._unverified:
            response = self._finish()
            if response is not None:
                self._exchange.reply(response)

    def _refuse(self, partition: Partition | None, answer: PartitionProduceResponse, problem: ApiError) -> None:
        _refuse(answer, problem)
        if problem.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
            _hint(self._broker, self._exchange, answer, partition, self._response)

    def end(self) -> ProduceResponse | None:
        self._is_read = True
        return None if self._unverified else self._finish()

    def _finish(self) -> ProduceResponse | None:
        """The response where nothing is to be waited for; otherwise it is sent later, or never."""
        if self._request.acks == 0:
            _finish_unacknowledged(self._exchange, self._response)
            return None
        if self._waits:
            _park(self._broker, self._exchange, self._request, self._response, self._waits)
            return None
        return self._response


def _find(
    broker: Broker, exchange: Request, request: ProduceRequest, topic: TopicProduceData, data: PartitionProduceData
) -> Partition:
    acks = request.acks
    partition = _look_up(broker, exchange.version, topic, data.index)
    if acks not in (0, 1, ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    if partition.name.topic in INTERNAL_TOPICS and exchange.client_id != "__admin_client":
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.name.topic}")
    return partition


def _check_in_sync(partition: Partition, acks: int) -> None:
    """A broker that does not lead knows nothing of it, and a client would not look for another leader."""
    partition.check_leader()
    if acks == ALL and not partition.has_enough_in_sync:
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition.in_sync_count} in-sync replica(s) of {partition.name}, min.insync.replicas is "
            f"{partition.min_in_sync_replicas}",
        )


def _check_codec(batch: memoryview, version: int) -> None:
    if version < FIRST_WITH_ZSTD and codec_number(batch) == Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd is not for version {version} of Produce")


def _look_up(broker: Broker, version: int, topic: TopicProduceData, index: int) -> Partition:
    if version >= 13:
        partition = broker.partitions.get_by_id(topic.topic_id, index)
        if partition is None and topic.topic_id not in broker.image.topics_by_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    else:
        partition = broker.partitions.get(topic.name, index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return partition


def _refuse(answer: PartitionProduceResponse, problem: ApiError) -> None:
    answer.error_code = problem.code
    answer.error_message = problem.message
    answer.base_offset = -1
    answer.record_errors = [BatchIndexAndErrorMessage(index, reason) for index, reason in problem.records]


def _hint(
    broker: Broker, exchange: Request, answer: PartitionProduceResponse, partition: Partition, response: ProduceResponse
) -> None:
    """Adds the current leader and its endpoint to a NOT_LEADER response (KIP-951)."""
    topic = broker.image.topics_by_id.get(partition.topic_id)
    if topic is None:
        return
    state = topic.partitions[partition.name.partition]
    if state.leader == broker.node_id:
        return  # it has stood down, and does not know who leads
    answer.current_leader = LeaderIdAndEpoch(state.leader, state.leader_epoch)
    endpoint = broker.endpoint(state.leader, exchange.listener)
    if endpoint is not None and all(known.node_id != state.leader for known in response.node_endpoints):
        response.node_endpoints.append(NodeEndpoint(state.leader, endpoint.host, endpoint.port))


def _finish_unacknowledged(exchange: Request, response: ProduceResponse) -> None:
    """acks=0 has no response at all; a client can learn of an error only by a closed connection."""
    if any(answer.error_code for topic in response.responses for answer in topic.partition_responses):
        exchange.close()
    else:
        exchange.no_reply()


def _park(
    broker: Broker,
    exchange: Request,
    request: ProduceRequest,
    response: ProduceResponse,
    waits: list[tuple[PartitionProduceResponse, Partition, int]],
) -> None:
    def finish(outcomes: dict[int, ErrorCode]) -> None:
        for slot, outcome in outcomes.items():
            if outcome:
                waits[slot][0].error_code = outcome
                waits[slot][0].base_offset = -1
        exchange.reply(response)

    deadline_ms = broker.clock.monotonic_ms() + max(0, request.timeout_ms)
    delayed = DelayedProduce(len(waits), deadline_ms, broker.clock, finish)
    for slot, (_, partition, last_offset) in enumerate(waits):
        wait = partition.when_acknowledged if request.acks == ALL else partition.when_durable
        wait(last_offset, delayed.outcome_of(slot))


# The fast path


def fast_path(broker: Broker, version: int) -> KnownRequests | None:
    """For requests of one batch whose acknowledgement waits for nothing: no message is decoded or encoded."""
    layout = known_produce.layout_of(version)
    return None if layout is None else KnownRequests(broker, version, layout)


class KnownRequests:
    """Knows requests of one connection by what stands before their batch (``wire.known_produce``)."""

    __slots__ = ("_broker", "_known", "_layout", "_version", "error_code")

    def __init__(self, broker: Broker, version: int, layout: known_produce.Layout) -> None:
        self._broker = broker
        self._version = version
        self._layout = layout
        self._known: dict[bytes, _KnownPartition] = {}
        self.error_code = 0

    def learn(self, frame: memoryview, body: int, stop: int, message: ProduceRequest) -> None:
        prefix_end = self._prefix_end(frame, body, stop)
        if not prefix_end or not self._layout.has_one_partition(frame, body, prefix_end):
            return
        topic = message.topic_data[0]
        try:
            partition = _look_up(self._broker, self._version, topic, topic.partition_data[0].index)
        except ApiError:
            return
        if partition.name.topic in INTERNAL_TOPICS or message.acks not in (1, ALL):
            return
        if len(self._known) >= MAX_KNOWN_PREFIXES:
            self._known.clear()
        prefix = frame[body:prefix_end].tobytes()
        self._known[prefix] = _KnownPartition(partition, topic, self._version, message.acks)

    def answer(self, frame: memoryview, body: int, stop: int, correlation_id: int) -> bytes | None:
        prefix_end = self._prefix_end(frame, body, stop)
        if not prefix_end:
            return None
        prefix = frame[body:prefix_end].tobytes()
        known = self._known.get(prefix)
        if known is None:
            return None
        partition = known.partition
        if known.all_acks:
            is_at_once = partition.commits_at_once and partition.has_enough_in_sync
        else:
            is_at_once = partition.is_durable_at_once
        if not is_at_once:
            if partition.leader is None:  # deleted, perhaps: there may be another of its name
                del self._known[prefix]
            return None
        batch = self._layout.batch(frame, prefix_end, stop)
        if batch is None or is_transactional(batch):
            return None
        self.error_code = 0
        try:
            appended = partition.append(batch, self._broker.clock.now_ms())
        except ApiError as problem:
            return self._refuse(known.topic, problem, correlation_id)
        return known.reply(
            correlation_id, appended.first_offset, appended.log_append_time_ms, appended.log_start_offset
        )

    def _prefix_end(self, frame: memoryview, body: int, stop: int) -> int:
        """0 where the request has another shape."""
        if stop - body < known_produce.SHORTEST:
            return 0
        prefix_end = self._layout.prefix_end(frame, body)
        return prefix_end if body < prefix_end < stop else 0

    def _refuse(self, topic: TopicProduceData, problem: ApiError, correlation_id: int) -> bytes:
        """Here, not by the ordinary steps: a batch whose append has failed may have been changed already."""
        self.error_code = problem.code
        answer = PartitionProduceResponse(topic.partition_data[0].index)
        _refuse(answer, problem)
        response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])
        return b"".join(header.frame_response(response, self._version, correlation_id))  # type: ignore[arg-type]


class _KnownPartition:
    __slots__ = ("all_acks", "partition", "reply", "topic")

    def __init__(self, partition: Partition, topic: TopicProduceData, version: int, acks: int) -> None:
        self.partition = partition
        self.all_acks = acks == ALL
        self.topic = TopicProduceData(topic.name, topic.topic_id, [PartitionProduceData(topic.partition_data[0].index)])
        """Without the batch, which is a view into a buffer."""
        self.reply = known_produce.reply_to(self.topic, version)
