"""The first batch of a transaction waits for the coordinator's word; batches behind it keep their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.txn.marker import EndMarker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_LEADER
from barnabas.runtime.transaction_verification import PATIENCE_MS, Claim, TransactionVerifier
from barnabas.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.unit.runtime.group_kit import Kit
from tests.unit.storage.kit import NOW, batch

CLAIM = Claim("tx", 7, 0)


class Leader:
    def __init__(self) -> None:
        kit = Kit()
        self.partition, self.clock = kit.partition, kit.clock
        self.coordinator = 2
        self.asked: list[tuple[AddPartitionsToTxnRequest, Callable[[Any], None]]] = []
        self.verifier = TransactionVerifier(
            coordinator_of=lambda _: self.coordinator, to_broker=self.send, clock=self.clock
        )
        self.outcomes: list[str] = []

    def send(self, node_id: int, lane: str, request: Any, timeout_ms: int, then: Callable[[Any], None]) -> None:
        assert node_id == self.coordinator
        self.asked.append((request, then))

    def produce(self, sequence: int, claim: Claim = CLAIM) -> None:
        data = memoryview(
            bytearray(
                batch(
                    producer_id=claim.producer_id,
                    producer_epoch=claim.producer_epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
            )
        )

        def verified(outcome: object | ApiError) -> None:
            try:
                if isinstance(outcome, ApiError):
                    raise outcome
                self.partition.append(data, NOW, guard=outcome)
            except ApiError as problem:
                self.outcomes.append(f"{sequence} {problem.code.name}")
            else:
                self.outcomes.append(f"{sequence} appended")

        self.verifier.verify(self.partition, claim, verified)

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> list[str]:
        request, then = self.asked.pop(0)
        results = [
            AddPartitionsToTxnResult(
                each.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name, [AddPartitionsToTxnPartitionResult(number, code) for number in topic.partitions]
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
        then(AddPartitionsToTxnResponse(results_by_transaction=results))
        return [each.transactional_id for each in request.transactions]


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_only_the_first_batch_is_verified(leader: Leader) -> None:
    leader.produce(0)
    assert not leader.outcomes
    leader.answer()
    leader.produce(1)
    assert leader.outcomes == ["0 appended", "1 appended"]
    assert not leader.asked


def test_batches_behind_the_first_keep_their_order(leader: Leader) -> None:
    for sequence in range(3):
        leader.produce(sequence)
    assert len(leader.asked) == 1
    leader.answer()
    assert leader.outcomes == ["0 appended", "1 appended", "2 appended"]


def test_each_is_asked_for_again_when_the_first_is_refused(leader: Leader) -> None:
    leader.produce(0)
    leader.produce(1)
    leader.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert leader.outcomes == ["0 TRANSACTION_ABORTABLE"]
    leader.answer(ErrorCode.PRODUCER_FENCED)
    assert leader.outcomes[1:] == ["1 PRODUCER_FENCED"]


def test_a_marker_that_comes_in_between_makes_the_answer_void(leader: Leader) -> None:
    leader.produce(0)
    leader.partition.append_end_marker(EndMarker(7, 0, 0, committed=False), NOW)
    leader.answer()
    assert not leader.outcomes, "the coordinator is asked again"
    leader.clock.wait(1)
    leader.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert leader.outcomes == ["0 TRANSACTION_ABORTABLE"]


def test_a_marker_of_the_transaction_before_does_no_harm(leader: Leader) -> None:
    leader.produce(0)
    leader.answer()
    following = Claim("tx", 7, 1, adds=True)
    leader.produce(0, following)
    leader.partition.append_end_marker(EndMarker(7, 1, 0, committed=True, transaction_version=2), NOW)
    leader.answer()
    leader.clock.wait(1)
    leader.answer()
    assert leader.outcomes == ["0 appended", "0 appended"]


def test_the_end_of_the_transaction_before_is_waited_for(leader: Leader) -> None:
    leader.produce(0)
    leader.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not leader.outcomes
    leader.clock.wait(1)
    leader.answer()
    assert leader.outcomes == ["0 appended"]


def test_but_not_for_ever(leader: Leader) -> None:
    leader.produce(0)
    while not leader.outcomes:
        leader.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        leader.clock.wait(50)
        assert leader.clock.monotonic_ms() <= 2 * PATIENCE_MS
    assert leader.outcomes == ["0 CONCURRENT_TRANSACTIONS"]


def test_questions_gather_while_one_is_in_flight(leader: Leader) -> None:
    for number in range(3):
        leader.produce(0, Claim(f"tx-{number}", number, 0))
    assert leader.answer() == ["tx-0"]
    assert leader.answer() == ["tx-1", "tx-2"]
    assert len(leader.outcomes) == 3


def test_a_coordinator_that_is_away(leader: Leader) -> None:
    leader.coordinator = NO_LEADER
    leader.produce(0)
    assert leader.outcomes == ["0 COORDINATOR_NOT_AVAILABLE"]
    leader.coordinator = 2
    leader.produce(0)
    _, then = leader.asked.pop()
    then(ApiError(ErrorCode.NETWORK_EXCEPTION))
    assert leader.outcomes[1:] == ["0 NETWORK_EXCEPTION"]
