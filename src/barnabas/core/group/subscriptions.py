"""The subscriptions and assignments of members, decoded from consumer protocol metadata."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.group.classic import ClassicGroup, Member
from barnabas.wire import codec
from barnabas.wire.schema import DecodeError
from barnabas.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

CONSUMER = "consumer"
OWNED_FROM_VERSION = 1
"""KIP-429: from here on a subscription says what its member has."""


class Subscription:
    """The topics of a group. Where a consumer group's cannot be known, it might read any."""

    def __init__(self, group: ClassicGroup | None) -> None:
        self._topics = _topics(group) if group is not None else frozenset()

    @property
    def is_known(self) -> bool:
        return self._topics is not None

    def __contains__(self, topic: str) -> bool:
        return self._topics is None or topic in self._topics


def _topics(group: ClassicGroup) -> frozenset[str] | None:
    if group.protocol_type != CONSUMER or not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            # Version 0 is how all later versions begin; after the two bytes of the version itself.
            found = codec.decode(ConsumerProtocolSubscription, 0, member.protocols.get(group.protocol, b""), 2)[0]
        except DecodeError:
            return None
        topics.update(found.topics)
    return frozenset(topics)


def must_move(group: ClassicGroup) -> bool:
    """Whether someone has what its new assignment takes away: it gives that up, and joins again (KIP-429)."""
    if group.protocol_type != CONSUMER:
        return False
    try:
        return any(_owned(group, member) - _assigned(member) for member in group.members.values())
    except DecodeError:
        return False  # an assignor that speaks a language of its own


def has_nothing(member: Member) -> bool:
    try:
        return not _assigned(member)
    except DecodeError:
        return False


def _owned(group: ClassicGroup, member: Member) -> frozenset[tuple[str, int]]:
    told = member.protocols.get(group.protocol or "", b"")
    if int.from_bytes(told[:2]) < OWNED_FROM_VERSION:
        return frozenset()
    return _pairs(codec.decode(ConsumerProtocolSubscription, OWNED_FROM_VERSION, told, 2)[0].owned_partitions)


def _assigned(member: Member) -> frozenset[tuple[str, int]]:
    if not member.assignment:
        return frozenset()
    return _pairs(codec.decode(ConsumerProtocolAssignment, 0, member.assignment, 2)[0].assigned_partitions)


def _pairs(places: Iterable[TopicPartition]) -> frozenset[tuple[str, int]]:
    return frozenset((place.topic, partition) for place in places for partition in place.partitions)
