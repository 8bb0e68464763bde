"""OffsetFetch 1–10: how far groups have come; several groups from version 8 (KIP-709), topics by id from version 10.

An unknown group, topic or partition is answered with offset -1 and no error. Null topics mean all.
"""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.broker.grouping import wrapped
from barnabas.model.errors import ApiError, ErrorCode
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


def handle(broker: Broker, exchange: Request, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    groups = request.groups if exchange.version >= 8 else [_single(request)]
    if not groups:
        return OffsetFetchResponse()
    answers: dict[int, OffsetFetchResponseGroup] = {}

    def answered(slot: int, response: object) -> None:
        if isinstance(response, ApiError):
            answers[slot] = OffsetFetchResponseGroup(groups[slot].group_id, error_code=response.code)
        else:
            assert isinstance(response, OffsetFetchResponse)
            answers[slot] = response.groups[0]
        if len(answers) == len(groups):
            exchange.reply(_response(broker, exchange, [answers[n] for n in range(len(groups))], unknown))

    unknown = [_resolve(broker, group) for group in groups] if exchange.version >= 10 else [[] for _ in groups]
    for slot, group in enumerate(groups):
        message = OffsetFetchRequest(groups=[group], require_stable=request.require_stable)
        broker.groups.submit(
            group.group_id,
            wrapped(broker, exchange, message),
            lambda response, slot=slot: answered(slot, response),  # type: ignore[misc]
        )
    return None


def _single(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _resolve(broker: Broker, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Gives topics their names; returns the answers for ids that nobody has."""
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


def _response(
    broker: Broker,
    exchange: Request,
    groups: list[OffsetFetchResponseGroup],
    unknown: list[list[OffsetFetchResponseTopics]],
) -> OffsetFetchResponse:
    if exchange.version >= 8:
        for group, refused in zip(groups, unknown, strict=True):
            for topic in group.topics:
                image = broker.image.topics.get(topic.name)
                if image is not None:
                    topic.topic_id = image.topic_id
            group.topics += refused
        return OffsetFetchResponse(groups=groups)
    only = groups[0]
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in only.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=only.error_code)
