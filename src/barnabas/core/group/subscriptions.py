"""What the members of a consumer group read, as far as the group can know."""

from __future__ import annotations

from barnabas.core.group.classic import ClassicGroup
from barnabas.wire import codec
from barnabas.wire.schema import DecodeError
from barnabas.wire.stored.consumer_protocol import ConsumerProtocolSubscription

CONSUMER = "consumer"


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
