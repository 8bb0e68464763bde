"""Metadata 0–13: brokers, topics and leaders, with the endpoints of the listener that got the request.

Null topics mean all; in version 0 an empty list does. Topics that do not exist are created where both the client and
auto.create.topics.enable allow it, and the answer waits for that. Topic ids: KIP-516.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.core.metadata.image import MetadataImage, TopicImage
from barnabas.core.metadata.topics import check_name, is_legal
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import INTERNAL_TOPICS, NO_LEADER, TRANSACTIONS_TOPIC, ZERO_UUID
from barnabas.runtime.authorized import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def handle(broker: Broker, exchange: Request, request: MetadataRequest) -> MetadataResponse | None:
    if request.topics is None or (exchange.version == 0 and not request.topics):
        return _about_all(broker, exchange, request)
    if exchange.version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics):
        return _without_ids(broker, exchange, request)
    # Naming a large topic again and again would make the answer larger than any request justifies.
    request.topics = list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())
    missing = _to_create(broker, exchange, request)
    if not missing:
        return _about(broker, exchange, request, {})
    _create(broker, exchange, request, missing)
    return None


def _without_ids(broker: Broker, exchange: Request, request: MetadataRequest) -> MetadataResponse:
    """Versions 10 and 11 have a place for topic ids, but are not to be asked by them (KIP-516)."""
    response = _frame(broker, exchange, request)
    response.topics = [
        MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
        for topic in request.topics or ()
    ]
    return response


def _about_all(broker: Broker, exchange: Request, request: MetadataRequest) -> MetadataResponse:
    plain = not (request.include_topic_authorized_operations or request.include_cluster_authorized_operations)
    cached = broker.metadata_cache.get((exchange.version, exchange.listener)) if plain else None
    if cached is not None:
        return cached  # type: ignore[return-value]
    response = _frame(broker, exchange, request)
    response.topics = [_topic(broker, topic, exchange, request) for topic in broker.image.topics.values()]
    if plain:
        broker.metadata_cache[exchange.version, exchange.listener] = response
    return response


def _frame(broker: Broker, exchange: Request, request: MetadataRequest) -> MetadataResponse:
    response = MetadataResponse(cluster_id=broker.cluster_id, controller_id=broker.node_id)
    for node in broker.live_brokers():
        endpoint = node.endpoint(exchange.listener)
        if endpoint is not None:
            response.brokers.append(MetadataResponseBroker(node.node_id, endpoint.host, endpoint.port, node.rack))
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


def _about(broker: Broker, exchange: Request, request: MetadataRequest, failures: dict[str, int]) -> MetadataResponse:
    response = _frame(broker, exchange, request)
    for wanted in request.topics or ():
        topic, problem = _find(broker.image, wanted)
        if topic is not None:
            response.topics.append(_topic(broker, topic, exchange, request))
        else:
            code = failures.get(wanted.name or "", problem)
            response.topics.append(_permitted(MetadataResponseTopic(code, wanted.name, wanted.topic_id), request))
    return response


def _find(image: MetadataImage, wanted: MetadataRequestTopic) -> tuple[TopicImage | None, int]:
    if wanted.name is None:
        return image.topics_by_id.get(wanted.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    if wanted.topic_id != ZERO_UUID:
        return None, ErrorCode.INVALID_REQUEST
    try:
        check_name(wanted.name)
    except ApiError as problem:
        return None, problem.code
    return image.topics.get(wanted.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(broker: Broker, topic: TopicImage, exchange: Request, request: MetadataRequest) -> MetadataResponseTopic:
    answer = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, topic, number) for number in range(len(topic.partitions))],
    )
    return _permitted(answer, request)


def _permitted(answer: MetadataResponseTopic, request: MetadataRequest) -> MetadataResponseTopic:
    if request.include_topic_authorized_operations:
        answer.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    return answer


def _partition(broker: Broker, topic: TopicImage, number: int) -> MetadataResponsePartition:
    state, brokers = topic.partitions[number], broker.image.brokers
    leader = broker.leader_of(topic, number)
    offline = [node for node in state.replicas if node not in brokers or brokers[node].fenced]
    return MetadataResponsePartition(
        ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else 0,
        number,
        leader,
        state.leader_epoch,
        list(state.replicas),
        list(state.in_sync_replicas),
        offline,
    )


# Topics that come into being by being asked for


def _to_create(broker: Broker, exchange: Request, request: MetadataRequest) -> list[str]:
    if not broker.settings.auto_create_topics_enable or not request.allow_auto_topic_creation:
        return []
    wanted = dict.fromkeys(topic.name for topic in request.topics or () if topic.name)
    names = (name for name in wanted if name is not None and name not in broker.image.topics)
    return [name for name in names if name != TRANSACTIONS_TOPIC and is_legal(name)]  # it has no coordinator yet


def _create(broker: Broker, exchange: Request, request: MetadataRequest, names: list[str]) -> None:
    from barnabas.broker.creation import request_for  # noqa: PLC0415 -- rarely needed

    def created(response: Any) -> None:
        failures: dict[str, int] = {}
        if isinstance(response, ApiError):
            failures = dict.fromkeys(names, response.code)
        else:
            failures = {result.name: _visible(result.error_code) for result in response.topics if result.error_code}
        made = [name for name in names if name not in failures]
        broker.when_image(
            lambda image: all(name in image.topics for name in made),
            lambda: exchange.reply(_about(broker, exchange, request, failures)),
        )

    broker.to_controller(request_for(names, broker), created)


def _visible(code: int) -> int:
    """Why a topic could not be made is the administrator's business; a client may try again."""
    if code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR):
        return code
    return (
        ErrorCode.LEADER_NOT_AVAILABLE
        if code == ErrorCode.TOPIC_ALREADY_EXISTS
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
