"""Carries leaders' proposals of in-sync replicas to the controller (AlterPartition, KIP-497).

One request is in flight; proposals made meanwhile go together in the next. Where the controller says that a replica is
not eligible, nothing has changed, and the leader drops the proposal. After any other error the controller may have
accepted it earlier, in a request whose answer was lost: the proposal stays, and counts for the high watermark, until
the metadata log says what holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.core.replication.leader import NO_BROKER_EPOCH, Proposal
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Clock, Timer
from barnabas.runtime.partition import Partition
from barnabas.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

RETRY_MS = 50
NOTHING_CHANGED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})

ToController = Callable[[Any, Callable[[Any], None]], None]

Key = tuple[bytes, int]


class InSyncChanges:
    def __init__(
        self, *, node_id: int, broker_epoch: Callable[[], int], to_controller: ToController, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._to_controller = to_controller
        self._clock = clock
        self._waiting: dict[Key, Partition] = {}
        self._is_sending = False
        self._timer: Timer | None = None
        self._is_closed = False

    def propose(self, partition: Partition) -> None:
        self._waiting[partition.topic_id, partition.name.partition] = partition
        self._advance()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _advance(self) -> None:
        if self._is_sending or self._timer is not None or self._is_closed:
            return
        waiting, self._waiting = self._waiting, {}
        asked = {
            key: (partition, partition.leader.proposal)
            for key, partition in waiting.items()
            if partition.leader is not None and partition.leader.proposal is not None
        }
        if asked:
            self._is_sending = True
            self._to_controller(self._request(asked), lambda answer: self._on_answer(asked, answer))

    def _request(self, asked: dict[Key, tuple[Partition, Proposal]]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for (topic_id, number), (_, proposal) in asked.items():
            topic = topics.setdefault(topic_id, AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=number,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=node, broker_epoch=self._epoch_of(node, broker_epoch))
                        for node, broker_epoch in zip(proposal.in_sync_replicas, proposal.broker_epochs, strict=True)
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _epoch_of(self, node: int, broker_epoch: int) -> int:
        return self._broker_epoch() if node == self._node_id and broker_epoch == NO_BROKER_EPOCH else broker_epoch

    def _on_answer(self, asked: dict[Key, tuple[Partition, Proposal]], answer: Any) -> None:
        self._is_sending = False
        if isinstance(answer, ApiError) or answer.error_code:
            # Nobody knows whether the controller took them: they are proposed again, until one of the two is known.
            for key, (partition, _) in asked.items():
                self._waiting.setdefault(key, partition)
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, self._on_timer)
            return
        for topic in answer.topics:
            for result in topic.partitions:
                found = asked.pop((topic.topic_id, result.partition_index), None)
                if found is not None:
                    self._decide(*found, result)
        self._advance()

    def _on_timer(self) -> None:
        self._timer = None
        self._advance()

    @staticmethod
    def _decide(partition: Partition, proposal: Proposal, result: Any) -> None:
        leader = partition.leader
        if leader is None or leader.proposal is not proposal:
            return  # the metadata log was faster
        if result.error_code == ErrorCode.NONE and result.leader_epoch == leader.leader_epoch:
            partition.update(result.partition_epoch, tuple(result.isr))
            partition.refuse_proposal(proposal)  # where the controller had no reason to change anything
        elif result.error_code in NOTHING_CHANGED:
            partition.refuse_proposal(proposal)
