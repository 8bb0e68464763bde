"""Hedged reads: when a replica is slow to answer a fetch, a second one is asked, and the first good answer counts.

Consumers may read from any in-sync replica (KIP-392). The request that loses is dropped with its connection: a reply
that is not read would be taken for the next one's.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import TypeVar

from barnabas.client.wire.client import Client
from barnabas.client.wire.connection import Connection, Sent
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable
from barnabas.model.ids import TopicPartition

A = TypeVar("A")
Pending = tuple[Connection, Sent]
Receive = Callable[[Connection, Sent], A]


def other_replica(client: Client, partition: TopicPartition, node_id: int) -> int | None:
    """An in-sync replica of the partition that is not on that node."""
    known = client.topic(partition.topic).partitions.get(partition.partition)
    if known is None:
        return None
    found = (node for node in known.in_sync_replicas if node != node_id and node in client.metadata.brokers)
    return next(found, None)


def receive(
    first: Pending,
    read: Receive[A],
    *,
    after_s: float,
    ask_second: Callable[[], Pending | None],
    is_good: Callable[[A], bool],
) -> A:
    """The answer to the first request; or, if that takes longer than ``after_s``, a good one to the second.

    Raises what ``read`` raises for the first request where the second brings nothing good.
    """
    if _ready([first], after_s):
        return read(*first)
    second = _asked(ask_second)
    if second is None:
        return read(*first)
    left_s = max(0.0, first[1].deadline - time.monotonic())
    if second in _ready([first, second], left_s):
        answer = _good(second, read, is_good)
        if answer is not None:
            first[0].close()
            return answer
    elif not second[0].closed:
        second[0].close()
    return read(*first)


def _asked(ask: Callable[[], Pending | None]) -> Pending | None:
    try:
        return ask()
    except (BrokerError, BrokerUnavailable):
        return None


def _good(pending: Pending, read: Receive[A], is_good: Callable[[A], bool]) -> A | None:
    """A follower may be a little behind the leader: an error of its own, or nothing at all, is no answer."""
    try:
        answer = read(*pending)
    except (BrokerError, BrokerUnavailable):
        return None
    return answer if is_good(answer) else None


def _ready(pending: list[Pending], within_s: float) -> list[Pending]:
    """Requests whose reply has begun to arrive."""
    readable, _, _ = select.select([connection for connection, _ in pending], [], [], within_s)
    return [each for each in pending if each[0] in readable]
