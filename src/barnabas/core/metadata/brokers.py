"""The lifecycle of a broker, as the controller sees it.

    (unknown) --register--> FENCED --heartbeat, caught up--> SERVING --want_shut_down--> IN CONTROLLED SHUTDOWN
    SERVING --session expired, want_fence, a new incarnation registers--> FENCED
    IN CONTROLLED SHUTDOWN --want_shut_down again, session expired--> FENCED for good: until it registers anew

A broker that asked to shut down serves again only after it has registered anew. Every start is a new incarnation: what
the broker led loses its leader when it registers and gets one when it is unfenced, so leader epochs go up.

Broker sessions (the time of the last heartbeat) are kept in memory only. They are lost with the controller, as in
Kafka; a new controller gives all unfenced brokers a full session timeout.
"""

from __future__ import annotations

from barnabas.core.metadata import elections
from barnabas.core.metadata.image import BrokerImage, MetadataImage
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.api.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_nodes
from barnabas.wire.stored.metadata_nodes import BrokerRegistrationChangeRecord

YES, NO = 1, -1
"""How a BrokerRegistrationChangeRecord sets a flag; 0 leaves it."""


class Brokers:
    def __init__(self, policy: MetadataPolicy) -> None:
        self._policy = policy
        self._deadlines: dict[int, int] = {}
        """Broker -> monotonic end of its session."""

    # Sessions

    def _touch(self, broker_id: int, now_ms: int) -> None:
        self._deadlines[broker_id] = now_ms + self._policy.broker_session_timeout_ms

    def _is_alive(self, broker: BrokerImage, now_ms: int) -> bool:
        """A broker inside the controller's own process has died with it: its session cannot be alive."""
        if broker.node_id == self._policy.node_id:
            return False
        if broker.node_id not in self._deadlines and not broker.fenced:
            self._touch(broker.node_id, now_ms)
        return self._deadlines.get(broker.node_id, now_ms) > now_ms

    def expire(self, image: MetadataImage, now_ms: int) -> Outcome:
        """Fences the brokers that have not been heard of for a session."""
        for node_id, broker in image.brokers.items():
            if not broker.fenced and node_id not in self._deadlines:
                self._touch(node_id, now_ms)
        expired = sorted(node for node, deadline in self._deadlines.items() if deadline <= now_ms)
        gone = []
        for node_id in expired:
            del self._deadlines[node_id]
            if node_id in image.brokers and not image.brokers[node_id].fenced:
                gone.append(node_id)
        records: list[Message] = [_change(image.brokers[node_id], fenced=YES) for node_id in gone]
        return [*records, *elections.leaders_lost(image, gone, controlled=False)], None

    # Registration

    def register(self, image: MetadataImage, request: BrokerRegistrationRequest, now_ms: int) -> Outcome:
        before = image.brokers.get(request.broker_id)
        same = before is not None and before.incarnation_id == request.incarnation_id
        if request.cluster_id != self._policy.cluster_id:
            return [], BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if before is not None and not same and not before.in_controlled_shutdown and self._is_alive(before, now_ms):
            return [], BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        if _has_folder_of_another(image, request):
            return [], BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION)
        self._touch(request.broker_id, now_ms)
        if before is not None and same:  # the answer was lost, and the broker asks again
            return [], BrokerRegistrationResponse(broker_epoch=before.broker_epoch)
        broker_epoch = image.next_offset
        records = [_registration(request, broker_epoch)]
        records += elections.leaders_lost(image, (request.broker_id,), controlled=False)
        return records, BrokerRegistrationResponse(broker_epoch=broker_epoch)

    def register_controller(self, request: ControllerRegistrationRequest) -> Outcome:
        return [_controller_registration(request)], ControllerRegistrationResponse(error_message=None)

    # Heartbeats

    def heartbeat(self, image: MetadataImage, request: BrokerHeartbeatRequest, now_ms: int) -> Outcome:
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return [], BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        self._touch(broker.node_id, now_ms)
        caught_up = request.current_metadata_offset >= broker.broker_epoch
        response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=broker.fenced)
        if request.want_shut_down:
            return _shut_down(image, broker, response), response
        if request.want_fence and not broker.fenced:
            response.is_fenced = True
            lost = elections.leaders_lost(image, (broker.node_id,), controlled=False)
            return [_change(broker, fenced=YES), *lost], response
        if broker.fenced and caught_up and not request.want_fence and not broker.in_controlled_shutdown:
            response.is_fenced = False
            return [_change(broker, fenced=NO), *elections.leaders_gained(image, broker.node_id)], response
        return [], response


def _shut_down(image: MetadataImage, broker: BrokerImage, response: BrokerHeartbeatResponse) -> list[Message]:
    """First leadership goes; the broker may stop when it asks again, and is fenced then."""
    if broker.serves:
        lost = elections.leaders_lost(image, (broker.node_id,), controlled=True)
        return [_change(broker, in_controlled_shutdown=YES), *lost]
    response.should_shut_down = response.is_fenced = True
    return [] if broker.fenced else [_change(broker, fenced=YES)]


def _change(broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0) -> Message:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.node_id,
        broker_epoch=broker.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def _has_folder_of_another(image: MetadataImage, request: BrokerRegistrationRequest) -> bool:
    """A data folder that was copied, or is given to two brokers: both would write as its owner."""
    return any(
        directory in broker.directories
        for broker in image.brokers.values()
        if broker.node_id != request.broker_id
        for directory in request.log_dirs
    )


def _registration(request: BrokerRegistrationRequest, broker_epoch: int) -> Message:
    return metadata_nodes.RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[
            metadata_nodes.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            metadata_nodes.BrokerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=list(request.log_dirs),
    )


def _controller_registration(request: ControllerRegistrationRequest) -> Message:
    return metadata_nodes.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            metadata_nodes.ControllerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in request.listeners
        ],
        features=[
            metadata_nodes.ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
