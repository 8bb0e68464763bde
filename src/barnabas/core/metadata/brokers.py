"""The lifecycle of a broker, as the controller sees it.

    (unknown) --register--> FENCED --heartbeat, caught up--> SERVING --want_shut_down--> IN CONTROLLED SHUTDOWN
    SERVING --session expired, want_fence, a new incarnation registers--> FENCED
    IN CONTROLLED SHUTDOWN --leads nothing and the others know, or session expired--> FENCED for good
    any --unregister--> (unknown)

A broker that asked to shut down serves again only after it has registered anew. Every start is a new incarnation: what
the broker led loses its leader when it registers and gets one when it is unfenced, so leader epochs go up.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from barnabas.core.metadata.elections import Elections
from barnabas.core.metadata.image import BrokerImage, MetadataImage
from barnabas.core.metadata.index import PartitionIndex, PartitionSet
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.core.metadata.sessions import Sessions
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_nodes import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

YES, NO = 1, -1
"""How a BrokerRegistrationChangeRecord sets a flag; 0 leaves it."""


class Brokers:
    def __init__(self, policy: MetadataPolicy, sessions: Sessions, elections: Elections) -> None:
        self._policy = policy
        self._sessions = sessions
        self._elections = elections

    def expire(self, image: MetadataImage, index: PartitionIndex, now_ms: int) -> Outcome:
        """Fences the brokers that have not been heard of for a session.

        All that go in one decision go together: a change made for one alone could elect another of them.
        """
        gone = self._sessions.expire(image, now_ms)
        if not gone:
            return [], None
        after = [replace(broker, fenced=True) for broker in gone]
        records = [_change(broker, fenced=YES) for broker in gone]
        return [*records, *self._elect(image, after, (index.in_sync_with(broker.node_id) for broker in gone))], None

    def unregister(self, image: MetadataImage, index: PartitionIndex, request: UnregisterBrokerRequest) -> Outcome:
        broker = image.brokers.get(request.broker_id)
        if broker is None:
            return [], UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {request.broker_id} is not currently registered",
            )
        if not broker.fenced:
            return [], UnregisterBrokerResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=f"Broker {request.broker_id} is running: stop it before it is unregistered.",
            )
        self._sessions.forget(broker.node_id)
        record = UnregisterBrokerRecord(broker_id=broker.node_id, broker_epoch=broker.broker_epoch)
        changes = self._elect(image, [replace(broker, fenced=True)], [index.in_sync_with(broker.node_id)])
        return [record, *changes], UnregisterBrokerResponse(error_message=None)

    # Heartbeats

    def heartbeat(
        self, image: MetadataImage, index: PartitionIndex, request: BrokerHeartbeatRequest, now_ms: int
    ) -> Outcome:
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return [], BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        self._sessions.touch(broker.node_id, now_ms, request.current_metadata_offset)
        caught_up = request.current_metadata_offset >= broker.broker_epoch
        response = BrokerHeartbeatResponse(is_caught_up=caught_up)
        after = self._after(image, index, broker, request, response)
        response.is_fenced = after.fenced
        if after == broker:
            return [], response
        affected = [index.in_sync_with(broker.node_id)] if broker.serves and not after.serves else []
        if after.serves and not broker.serves:
            affected.append(index.leaderless_on(broker.node_id))
        affected += [index.in_directory(gone) for gone in broker.directories if gone not in after.directories]
        return [_difference(broker, after), *self._elect(image, [after], affected)], response

    def _after(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        broker: BrokerImage,
        request: BrokerHeartbeatRequest,
        response: BrokerHeartbeatResponse,
    ) -> BrokerImage:
        """The broker as the heartbeat makes it."""
        after = _directories(broker, request)
        if request.want_shut_down:
            response.should_shut_down = self._may_stop(image, index, broker, request)
            if response.should_shut_down:
                return replace(after, fenced=True)
            return replace(after, in_controlled_shutdown=True)
        if request.want_fence:
            return replace(after, fenced=True)
        if broker.fenced and response.is_caught_up and not broker.in_controlled_shutdown:
            return replace(after, fenced=False)
        return after

    def _may_stop(
        self, image: MetadataImage, index: PartitionIndex, broker: BrokerImage, request: BrokerHeartbeatRequest
    ) -> bool:
        """A broker that serves moves its leaders first, even if it has none: it is in in-sync sets."""
        if broker.fenced or request.want_fence:
            return True
        if not broker.in_controlled_shutdown or index.led_by(broker.node_id):
            return False
        return self._sessions.may_stop(broker.node_id, image)

    def _elect(self, image: MetadataImage, after: list[BrokerImage], affected: Iterable[PartitionSet]) -> list[Message]:
        return self._elections.step(PartitionRules(image, self._policy, after), affected)


def _directories(broker: BrokerImage, request: BrokerHeartbeatRequest) -> BrokerImage:
    """A record cannot say that no directory is left; such a broker stops."""
    online = tuple(each for each in broker.directories if each not in request.offline_log_dirs) or broker.directories
    if request.cordoned_log_dirs is None:
        return replace(broker, directories=online)
    return replace(broker, directories=online, cordoned_directories=tuple(request.cordoned_log_dirs))


def _change(broker: BrokerImage, *, fenced: int = 0) -> Message:
    return BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.broker_epoch, fenced=fenced)


def _difference(before: BrokerImage, after: BrokerImage) -> Message:
    record = BrokerRegistrationChangeRecord(broker_id=before.node_id, broker_epoch=before.broker_epoch)
    if after.fenced != before.fenced:
        record.fenced = YES if after.fenced else NO
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        record.in_controlled_shutdown = YES
    if after.directories != before.directories:
        record.log_dirs = list(after.directories)
    if after.cordoned_directories != before.cordoned_directories:
        record.cordoned_log_dirs = list(after.cordoned_directories or ())
    return record
