"""Requests to partition leaders: split by leader, sent, and retried where leaders moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from barnabas.client.wire.client import Client
from barnabas.client.wire.connection import Connection
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable
from barnabas.model.errors import RETRIABLE, ErrorCode
from barnabas.model.ids import TopicPartition

T = TypeVar("T")


class Answer(NamedTuple):
    partition: TopicPartition
    code: int
    message: str | None = None


Ask: TypeAlias = Callable[[Connection, list[TopicPartition]], Iterable[tuple[Answer, T]]]
"""Sends one request for partitions of one leader and tells the answers apart."""


def by_topic(values: Mapping[TopicPartition, T]) -> Iterable[tuple[str, list[tuple[int, T]]]]:
    """Requests name partitions so: a topic, and the numbers of its partitions with what belongs to each."""
    topics: dict[str, list[tuple[int, T]]] = {}
    for (topic, number), value in values.items():
        topics.setdefault(topic, []).append((number, value))
    return topics.items()


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    return [(topic, [number for number, _ in parts]) for topic, parts in by_topic(dict.fromkeys(partitions))]


def ask_leaders(client: Client, partitions: Iterable[TopicPartition], ask: Ask[T]) -> dict[TopicPartition, T]:
    """Every partition's answer. Raises BrokerError for the first that no waiting can heal, or when the time is up."""
    pending = dict.fromkeys(partitions)
    order = list(pending)
    done: dict[TopicPartition, T] = {}
    retry = client.retry()
    while True:
        failure = _ask_once(client, list(pending), ask, done)
        if failure is None:
            return {partition: done[partition] for partition in order}
        pending = {partition: None for partition in pending if partition not in done}
        if not retry.again():
            raise failure
        client.forget({partition.topic for partition in pending})


def _ask_once(
    client: Client, pending: list[TopicPartition], ask: Ask[T], done: dict[TopicPartition, T]
) -> Exception | None:
    """Fills in what was answered; returns why the rest must be asked again."""
    failure: Exception | None = None
    for leader, group in client.by_leader(pending).items():
        if leader < 0:
            failure = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(group[0]), "the partition has no leader")
            continue
        try:
            for answer, value in ask(client.node(leader), group):
                if answer.code == ErrorCode.NONE:
                    done[answer.partition] = value
                    continue
                failure = BrokerError(answer.code, str(answer.partition), answer.message)
                if answer.code not in RETRIABLE:
                    raise failure
        except BrokerUnavailable as error:
            failure = error
    return failure
