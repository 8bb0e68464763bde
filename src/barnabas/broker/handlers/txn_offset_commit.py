"""TxnOffsetCommit 0–5: offsets that count when the transaction commits (KIP-98, KIP-447).

The coordinator of the transaction is asked first whether the group's partition is part of it; from version 5 on this
broker adds it (KIP-890).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import parted, together, told, wrapped
from barnabas.broker.transacting import unverified
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.group_coordinator import GroupShard
from barnabas.runtime.pipeline import Request
from barnabas.runtime.transaction_verification import Claim
from barnabas.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_WITH_LOADING = 2
FIRST_WITH_ABORTABLE = 4
FIRST_WITH_ADDING = 5


def handle(broker: Broker, exchange: Request, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
    known, refused = _split(broker, request)
    if not known:
        return TxnOffsetCommitResponse(topics=together((), refused))
    request.topics = known

    def finish(response: Any) -> None:
        if isinstance(response, ApiError):
            code = told(response, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and exchange.version < FIRST_WITH_LOADING:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            response = TxnOffsetCommitResponse(topics=[_refused(topic, code) for topic in known])
        response.topics = together(response.topics, refused)
        exchange.reply(response)

    try:
        shard = broker.groups.shard_of(request.group_id)
    except ApiError as problem:
        finish(problem)
    else:
        _verify(broker, exchange, request, shard, finish)
    return None


def _verify(broker: Broker, exchange: Request, request: TxnOffsetCommitRequest, shard: GroupShard, finish: Any) -> None:
    adds = exchange.version >= FIRST_WITH_ADDING
    claim = Claim(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        adds=adds,
        is_checked=adds or broker.settings.transaction_partition_verification_enable,
    )

    def verified(outcome: object | ApiError) -> None:
        if isinstance(outcome, ApiError):
            knows_abortable = exchange.version >= FIRST_WITH_ABORTABLE
            otherwise = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            finish(unverified(outcome, knows_abortable=knows_abortable, otherwise=otherwise))
        else:
            shard.submit(replace(wrapped(broker, exchange, request), guard=outcome), finish)

    broker.verifier.verify(shard.partition, claim, verified)


def _split(
    broker: Broker, request: TxnOffsetCommitRequest
) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]:
    """Topics with the partitions that exist, and answers for the others."""
    known, refused = [], []
    for topic in request.topics:
        image = broker.image.topics.get(topic.name)
        there, missing = parted(topic.partitions, len(image.partitions) if image is not None else 0)
        if missing:
            wanted = TxnOffsetCommitRequestTopic(topic.name, missing)
            refused.append(_refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if there:
            known.append(TxnOffsetCommitRequestTopic(topic.name, there))
    return known, refused


def _refused(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    answers = [TxnOffsetCommitResponsePartition(wanted.partition_index, code) for wanted in topic.partitions]
    return TxnOffsetCommitResponseTopic(topic.name, answers)
