"""A transactional producer made of raw requests, in the versions that a test asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.api.produce import PartitionProduceResponse, ProduceResponse
from barnabas.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.reliability.raw import Raw, batch, produce_request


class Versions(NamedTuple):
    init: int
    add: int
    add_offsets: int
    end: int
    commit: int
    produce: int


OLDEST = Versions(init=0, add=0, add_offsets=0, end=0, commit=0, produce=3)
VERSION_1 = Versions(init=4, add=3, add_offsets=3, end=3, commit=3, produce=11)
VERSION_2 = Versions(init=5, add=3, add_offsets=4, end=5, commit=5, produce=12)


class TransactionalProducer:
    def __init__(self, raw: Raw, transactional_id: str, versions: Versions = VERSION_1) -> None:
        self.raw = raw
        self.transactional_id = transactional_id
        self.versions = versions
        self.producer_id = self.producer_epoch = -1
        self.sequence: dict[tuple[str, int], int] = {}
        request = FindCoordinatorRequest(transactional_id, 1, [transactional_id])
        raw.call(request, FindCoordinatorResponse, 4)

    def init(self, *, timeout_ms: int = 60_000, continues: bool = False) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        if continues:
            request.producer_id, request.producer_epoch = self.producer_id, self.producer_epoch
        reply = self.raw.call(request, InitProducerIdResponse, self.versions.init)
        if not reply.error_code:
            self._own(reply.producer_id, reply.producer_epoch)
        return reply

    def _own(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.sequence.clear()

    def add(self, topic: str, partitions: Sequence[int] = (0,)) -> list[int]:
        request = AddPartitionsToTxnRequest(
            self.transactional_id,
            [],
            self.producer_id,
            self.producer_epoch,
            [AddPartitionsToTxnTopic(topic, list(partitions))],
        )
        reply = self.raw.call(request, AddPartitionsToTxnResponse, self.versions.add)
        return [result.partition_error_code for result in reply.results_by_topic_v3_and_below[0].results_by_partition]

    def send(self, topic: str, *values: bytes, partition: int = 0) -> PartitionProduceResponse:
        sequence = self.sequence.get((topic, partition), 0)
        records = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(topic, records, partition=partition)
        request.transactional_id = self.transactional_id
        reply = self.raw.call(request, ProduceResponse, self.versions.produce)
        answer = reply.responses[0].partition_responses[0]
        if not answer.error_code:
            self.sequence[topic, partition] = sequence + len(values)
        return answer

    def add_offsets(self, group: str) -> int:
        request = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, group)
        return self.raw.call(request, AddOffsetsToTxnResponse, self.versions.add_offsets).error_code

    def commit_offset(self, group: str, topic: str, offset: int, **member: object) -> int:
        wanted = TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group,
            self.producer_id,
            self.producer_epoch,
            topics=[wanted],
            **member,  # type: ignore[arg-type]
        )
        reply = self.raw.call(request, TxnOffsetCommitResponse, self.versions.commit)
        return reply.topics[0].partitions[0].error_code

    def end(self, *, commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, commit)
        reply = self.raw.call(request, EndTxnResponse, self.versions.end)
        if not reply.error_code and self.versions.end >= 5:
            self._own(reply.producer_id, reply.producer_epoch)
        return reply


def latest(raw: Raw, topic: str, *, isolation_level: int) -> int:
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[wanted])
    return raw.call(request, ListOffsetsResponse, 7).topics[0].partitions[0].offset
