"""Passes group requests to the shard of the group, and translates its replies and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.broker.context import Broker
from barnabas.core.group.turn import GroupRequest
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.sync_group import SyncGroupRequest
from barnabas.wire.schema import Message

_TOLD = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_IN_BACKGROUND = ("apache-kafka-java", "librdkafka", "confluent-kafka", "kafka-python", "kgo")
"""Libraries whose consumers keep fetching during a heartbeat, by their software names (KIP-511).
kafkajs, for one, does not fetch before the heartbeat is answered."""
_NEXT_BEAT_IS_FAR = ("apache-kafka-java", "kafka-python", "kgo")
"""Those whose SyncGroup may be delayed too. Not librdkafka: it sends a heartbeat right after the SyncGroup response,
which is delayed instead, and its applications expect every assignment, empty ones too."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


def told(problem: ApiError, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> ErrorCode:
    """The error code for a failed append: one that makes clients look up the coordinator again, as in Kafka."""
    return too_large if problem.code in _TOO_LARGE else _TOLD.get(problem.code, problem.code)


def may_wait(exchange: Request, message: Message) -> bool:
    """Whether the response may be delayed while there is no rebalance (ADR 5)."""
    names = _NEXT_BEAT_IS_FAR if isinstance(message, SyncGroupRequest) else _IN_BACKGROUND
    return exchange.client_software.startswith(names)


def wrapped(broker: Broker, exchange: Request, message: Message) -> GroupRequest:
    host, now_ms = f"/{exchange.client_host}", broker.clock.now_ms()
    return GroupRequest(message, exchange.version, exchange.client_id or "", host, now_ms, may_wait(exchange, message))


def parted(partitions: Sequence[Any], count: int) -> tuple[list[Any], list[Any]]:
    """Splits the requested partitions of a topic into those that exist (below ``count``) and the others."""
    there = [wanted for wanted in partitions if 0 <= wanted.partition_index < count]
    missing = [wanted for wanted in partitions if not 0 <= wanted.partition_index < count]
    return there, missing


def together(answered: Sequence[Any], refused: Sequence[Any]) -> list[Any]:
    """Merges the topics that the shard answered with those that were refused before it was asked."""
    topics = list(answered)
    named = {topic.name: topic for topic in answered} if refused else {}
    for topic in refused:
        same = named.get(topic.name) if topic.name else None  # an unknown id has no name
        if same is None:
            topics.append(topic)
        else:
            same.partitions = [*same.partitions, *topic.partitions]
    return topics


def ask(
    broker: Broker,
    exchange: Request,
    group_id: str,
    message: Message,
    failed: Callable[[ApiError], Message],
    finished: Callable[[Any], Message] | None = None,
) -> None:
    """Replies with the shard's answer. ``failed`` makes the response for a group that cannot be served here now."""

    def answered(response: Any) -> None:
        if isinstance(response, ApiError):
            exchange.reply(failed(response))
        else:
            exchange.reply(response if finished is None else finished(response))

    broker.groups.submit(group_id, wrapped(broker, exchange, message), answered)


def ask_each(
    broker: Broker,
    exchange: Request,
    asked: Sequence[tuple[str, Message]],
    then: Callable[[list[Any]], Message],
) -> None:
    """Asks about several groups, each of its own shard; replies with what ``then`` makes of all answers, in order."""
    answers: dict[int, Any] = {}

    def answered(slot: int, response: Any) -> None:
        answers[slot] = response
        if len(answers) == len(asked):
            exchange.reply(then([answers[number] for number in range(len(asked))]))

    for slot, (group_id, message) in enumerate(asked):
        broker.groups.submit(
            group_id,
            wrapped(broker, exchange, message),
            lambda response, slot=slot: answered(slot, response),  # type: ignore[misc]
        )
