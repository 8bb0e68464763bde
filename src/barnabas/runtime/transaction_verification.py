"""Asks transaction coordinators about batches that begin a transaction in a partition (KIP-890).

A leader takes the first batch of a transaction only if the coordinator knows that the partition is part of it; clients
of transaction version 2 have the leader add it. Batches of the same producer that come meanwhile wait behind the first,
so that their order stays. Each coordinator has one request in flight, which takes all that has gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.core.txn.records import by_topic
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_LEADER, TopicPartition
from barnabas.model.ports import Clock
from barnabas.runtime.partition import Partition
from barnabas.runtime.transaction_markers import ToBroker
from barnabas.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

LANE = "transactions"
TIMEOUT_MS = 5_000
PATIENCE_MS = 1_000
"""How long a batch waits for the transaction before its own to be complete."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1, 50
"""Between two questions meanwhile; each pause is twice the one before."""

Verified = Callable[[object | ApiError], None]
"""Takes the guard for the append, or why it must not be made."""


class Claim(NamedTuple):
    """A batch says that it belongs to a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool = False
    """The partition is added to the transaction; otherwise it must be part of it already."""
    is_checked: bool = True
    """transaction.partition.verification.enable, which spares older clients the question."""


class _Question:
    __slots__ = ("claim", "deadline_ms", "guard", "partition", "pause_ms", "then", "waiting")

    def __init__(self, partition: Partition, claim: Claim, deadline_ms: int, then: Verified) -> None:
        self.partition = partition
        self.claim = claim
        self.guard: object = None
        self.deadline_ms = deadline_ms
        self.then = then
        self.pause_ms = FIRST_PAUSE_MS
        self.waiting: list[tuple[Claim, Verified]] = []
        """Of the same producer, behind this one."""


class TransactionVerifier:
    def __init__(self, *, coordinator_of: Callable[[str], int], to_broker: ToBroker, clock: Clock) -> None:
        self._coordinator_of = coordinator_of
        self._to_broker = to_broker
        self._clock = clock
        self._questions: dict[tuple[TopicPartition, int], _Question] = {}
        """By partition and producer id."""
        self._queues: dict[int, list[_Question]] = {}
        self._in_flight: set[int] = set()

    def needs_answer(self, partition: Partition, claim: Claim) -> bool:
        """Whether an append has to wait; ``guard`` is None for those that need not."""
        if (partition.name, claim.producer_id) in self._questions:
            return True
        return claim.is_checked and partition.needs_verification(claim.producer_id, claim.producer_epoch)

    def verify(self, partition: Partition, claim: Claim, then: Verified) -> None:
        """``then`` must append, or give up, before it returns: those behind it come next."""
        key = partition.name, claim.producer_id
        asked = self._questions.get(key)
        if asked is not None:
            asked.waiting.append((claim, then))
            return
        if not partition.needs_verification(claim.producer_id, claim.producer_epoch):
            then(None)
            return
        self._questions[key] = question = _Question(partition, claim, self._clock.monotonic_ms() + PATIENCE_MS, then)
        self._ask(question)

    def _ask(self, question: _Question) -> None:
        claim = question.claim
        question.guard = question.partition.begin_verification(claim.producer_id, claim.producer_epoch)
        coordinator = self._coordinator_of(claim.transactional_id)
        if coordinator == NO_LEADER:
            self._answer(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._queues.setdefault(coordinator, []).append(question)
        self._send_to(coordinator)

    def _send_to(self, node_id: int) -> None:
        queue = self._queues.get(node_id)
        if not queue or node_id in self._in_flight:
            return
        asked: dict[str, list[_Question]] = {}
        later = []
        for question in queue:
            same = asked.setdefault(question.claim.transactional_id, [])
            if not same or same[0].claim == question.claim:
                same.append(question)
            else:
                later.append(question)  # a request names each transactional id once
        self._queues[node_id] = later
        self._in_flight.add(node_id)
        self._to_broker(
            node_id, LANE, _request(asked), TIMEOUT_MS, lambda response: self._answered(node_id, asked, response)
        )

    def _answered(
        self, node_id: int, asked: dict[str, list[_Question]], response: AddPartitionsToTxnResponse | ApiError
    ) -> None:
        self._in_flight.discard(node_id)
        for transactional_id, questions in asked.items():
            codes = _codes(response, transactional_id)
            for question in questions:
                self._judge(question, codes.get(question.partition.name, _whole(response)))
        self._send_to(node_id)

    def _judge(self, question: _Question, code: ErrorCode) -> None:
        if code is ErrorCode.NONE and not question.partition.holds(question.claim.producer_id, question.guard):
            # A marker has arrived in between. It may be that of the transaction before: the answer is void either way.
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        now_ms = self._clock.monotonic_ms()
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS or now_ms >= question.deadline_ms:
            self._answer(question, code)
            return
        self._clock.call_at(now_ms + question.pause_ms, lambda: self._ask(question))
        question.pause_ms = min(2 * question.pause_ms, LONGEST_PAUSE_MS)

    def _answer(self, question: _Question, code: ErrorCode) -> None:
        partition, claim = question.partition, question.claim
        del self._questions[partition.name, claim.producer_id]
        if code is ErrorCode.NONE:
            question.then(question.guard)
        else:
            partition.end_verification(claim.producer_id, question.guard)
            question.then(ApiError(code))
        for waiting_claim, then in question.waiting:
            self.verify(partition, waiting_claim, then)


def _request(asked: dict[str, list[_Question]]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=questions[0].claim.producer_id,
                producer_epoch=questions[0].claim.producer_epoch,
                verify_only=not questions[0].claim.adds,
                topics=[
                    AddPartitionsToTxnTopic(topic, numbers)
                    for topic, numbers in by_topic(question.partition.name for question in questions).items()
                ],
            )
            for transactional_id, questions in asked.items()
        ]
    )


def _whole(response: AddPartitionsToTxnResponse | ApiError) -> ErrorCode:
    """Of a partition that the response says nothing of."""
    if isinstance(response, ApiError):
        return response.code
    return ErrorCode(response.error_code) if response.error_code else ErrorCode.UNKNOWN_SERVER_ERROR


def _codes(response: AddPartitionsToTxnResponse | ApiError, transactional_id: str) -> dict[TopicPartition, ErrorCode]:
    if isinstance(response, ApiError) or response.error_code:
        return {}
    return {
        TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
        for transaction in response.results_by_transaction
        if transaction.transactional_id == transactional_id
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    }
