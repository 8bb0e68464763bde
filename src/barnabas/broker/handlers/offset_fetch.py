"""OffsetFetch 1–10: committed offsets; several groups from version 8 (KIP-709), topics by id from version 10.

An unknown group, topic or partition is answered with offset -1 and no error. Null topics mean all.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask_each, told
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_FROM_VERSION = 2
SEVERAL_FROM_VERSION = 8
IDS_FROM_VERSION = 10


def handle(broker: Broker, exchange: Request, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    groups = request.groups if exchange.version >= SEVERAL_FROM_VERSION else [_single(request)]
    if not groups:
        return OffsetFetchResponse()
    by_id = exchange.version >= IDS_FROM_VERSION
    unknown = [_resolve(broker, group) if by_id else [] for group in groups]

    def finished(answers: list[Any]) -> OffsetFetchResponse:
        found = [_answer(*pair) for pair in zip(groups, answers, strict=True)]
        if exchange.version < SEVERAL_FROM_VERSION:
            return _only(found[0], groups[0], exchange.version)
        for group, refused in zip(found, unknown, strict=True):
            if by_id:
                group.topics = [*_with_ids(broker, group.topics), *refused]
        return OffsetFetchResponse(groups=found)

    asked = [
        (group.group_id, OffsetFetchRequest(groups=[group], require_stable=request.require_stable)) for group in groups
    ]
    ask_each(broker, exchange, asked, finished)
    return None


def _answer(group: OffsetFetchRequestGroup, answer: Any) -> OffsetFetchResponseGroup:
    if isinstance(answer, ApiError):
        return OffsetFetchResponseGroup(group.group_id, error_code=told(answer))
    found: OffsetFetchResponseGroup = answer.groups[0]
    return found


def _single(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _resolve(broker: Broker, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Fills in the names of topics; returns the responses for unknown ids."""
    refused: list[OffsetFetchResponseTopics] = []
    known = []
    for topic in group.topics or ():
        image = broker.image.topics_by_id.get(topic.topic_id)
        if image is None:
            answers = [
                OffsetFetchResponsePartitions(number, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
                for number in topic.partition_indexes
            ]
            refused.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=answers))
        else:
            topic.name = image.name
            known.append(topic)
    if group.topics is not None:
        group.topics = known
    return refused


def _with_ids(broker: Broker, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Leaves out deleted topics, which have no id."""
    known = []
    for topic in topics:
        image = broker.image.topics.get(topic.name)
        if image is not None:
            topic.topic_id = image.topic_id
            known.append(topic)
    return known


def _only(group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponse:
    """The response of versions for one group. Version 1 has error codes in the partitions only."""
    if group.error_code and version < GROUP_ERROR_FROM_VERSION:
        code = group.error_code
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [OffsetFetchResponsePartition(number, -1, -1, "", code) for number in topic.partition_indexes],
            )
            for topic in asked.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(topics=[_older(topic) for topic in group.topics], error_code=group.error_code)


def _older(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        topic.name,
        [
            OffsetFetchResponsePartition(
                each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
            )
            for each in topic.partitions
        ],
    )
