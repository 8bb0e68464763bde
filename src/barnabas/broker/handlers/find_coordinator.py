"""FindCoordinator 0–6: the broker that coordinates a group or a transactional id (KIP-699 from version 4).

The first request creates the topic of the coordinator. Share groups have no coordinator yet. librdkafka uses lz4 only
with brokers that serve this API.
"""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.creation import create_internal
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.runtime.coordinator import partition_of
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}


def handle(broker: Broker, exchange: Request, request: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    topic = TOPICS.get(request.key_type)
    if topic is not None and topic not in broker.image.topics:
        create_internal(broker, topic, lambda: exchange.reply(_answer(broker, exchange, request)))
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
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return _none(key, ErrorCode.INVALID_REQUEST, f"There is no kind {key_type} of coordinator.")
    if key_type == SHARE:
        return _none(key, ErrorCode.UNSUPPORTED_VERSION, "This version of Barnabas does not support share groups yet.")
    topic = broker.image.topics.get(TOPICS[key_type])
    if topic is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TOPICS[key_type]} could not be created.")
    leader = broker.leader_of(topic, partition_of(key, len(topic.partitions)))
    endpoint = broker.endpoint(leader, exchange.listener)
    if endpoint is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's partition has no leader.")
    return Coordinator(key, leader, endpoint.host, endpoint.port, 0, None)


def _none(key: str, code: ErrorCode, reason: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, code, reason)
