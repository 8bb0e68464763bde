"""FindCoordinator 0–6: the broker that coordinates a group (KIP-699 from version 4).

The first request creates ``__consumer_offsets``. Transactions and share groups have no coordinator yet. librdkafka
uses lz4 only with brokers that serve this API.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.broker.creation import request_for
from barnabas.core.metadata.image import TopicImage
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
LIBRDKAFKA, FRANZ_GO = ("librdkafka", "confluent-kafka"), "kgo"
"""How clients name themselves (KIP-511); bindings of librdkafka have names of their own."""


def handle(broker: Broker, exchange: Request, request: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    if request.key_type == GROUP and not broker.groups.is_ready:
        creation = request_for([OFFSETS_TOPIC], broker)

        def created(_: Any) -> None:
            broker.when_image(
                lambda image: OFFSETS_TOPIC in image.topics, lambda: exchange.reply(_answer(broker, exchange, request))
            )

        broker.to_controller(creation, created)
        return None
    return _answer(broker, exchange, request)


def _answer(broker: Broker, exchange: Request, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if exchange.version >= 4 else [request.key]
    found = [_coordinator(broker, exchange, request.key_type, key) for key in keys]
    if exchange.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(broker: Broker, exchange: Request, key_type: int, key: str) -> Coordinator:
    topic = broker.image.topics.get(OFFSETS_TOPIC)
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return _none(key, ErrorCode.INVALID_REQUEST, f"There is no kind {key_type} of coordinator.")
    if key_type == TRANSACTION:
        return _no_transactions(broker, exchange, key)
    if key_type == SHARE:
        return _none(key, ErrorCode.UNSUPPORTED_VERSION, "This version of Barnabas does not support share groups yet.")
    if topic is None or not broker.groups.is_ready:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} could not be created.")
    leader = _leader(broker, topic, key)
    endpoint = broker.endpoint(leader, exchange.listener)
    if endpoint is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's partition has no leader.")
    return Coordinator(key, leader, endpoint.host, endpoint.port, 0, None)


def _no_transactions(broker: Broker, exchange: Request, key: str) -> Coordinator:
    """Each client gets the answer after which its transactional producer fails at once, with the reason where shown.

    To librdkafka an error of authorization is final, and to franz-go only one of InitProducerId: either would ask again
    until it times out. Java's client, kafka-python and aiokafka fail upon any error that is not retriable.
    """
    endpoint = broker.endpoint(broker.node_id, exchange.listener)
    if exchange.client_software.startswith(FRANZ_GO) and endpoint is not None:
        return Coordinator(key, broker.node_id, endpoint.host, endpoint.port, 0, None)
    is_librdkafka = exchange.client_software.startswith(LIBRDKAFKA)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_librdkafka else ErrorCode.UNSUPPORTED_VERSION
    return _none(key, code, "This version of Barnabas does not support transactions yet.")


def _leader(broker: Broker, topic: TopicImage, group_id: str) -> int:
    return broker.leader_of(topic, broker.groups.partition_of(group_id))


def _none(key: str, code: ErrorCode, reason: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, code, reason)
