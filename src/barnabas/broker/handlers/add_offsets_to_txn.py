"""AddOffsetsToTxn 0–4: the partition of a group's offsets becomes part of a transaction (KIP-98)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.transacting import ask
from barnabas.core.txn.requests import AddPartitions
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC, TopicPartition
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FIRST_WITH_FENCED = 2
"""KIP-588."""


def handle(broker: Broker, exchange: Request, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
    if not broker.groups.is_ready:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    asked = AddPartitions(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=(TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id)),),
        wall_ms=broker.clock.now_ms(),
    )
    ask(
        broker,
        exchange,
        request.transactional_id,
        asked,
        lambda _: AddOffsetsToTxnResponse(),
        _failed,
        fenced_from_version=FIRST_WITH_FENCED,
    )
    return None


def _failed(code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)
