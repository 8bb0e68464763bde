"""Registration of brokers and controllers (KIP-631, KIP-858, KIP-919, KIP-966).

Every start of a broker is a new incarnation with an epoch of its own, the offset of its registration. A registration
with ``previous_broker_epoch`` proves that exactly that incarnation stopped cleanly: its log is complete. Any other new
incarnation may have lost what the disk had not stored, and leaves the in-sync and the eligible sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from barnabas.core.metadata import features
from barnabas.core.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage
from barnabas.core.metadata.index import PartitionIndex, PartitionSet
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.core.metadata.sessions import Sessions
from barnabas.core.metadata.snapshot import broker_record, controller_record
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.api.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from barnabas.wire.schema import Message

RESERVED_DIRECTORIES = 100
"""Directory ids below this number are not of directories."""


class Registration:
    def __init__(self, policy: MetadataPolicy, sessions: Sessions) -> None:
        self._policy = policy
        self._sessions = sessions

    def register(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        request: BrokerRegistrationRequest,
        now_ms: int,
        log_end_offset: int,
    ) -> Outcome:
        """``log_end_offset`` is where the registration will be: the broker's epoch."""
        before = image.brokers.get(request.broker_id)
        try:
            self._check(image, before, request, now_ms)
        except ApiError as problem:
            return [], BrokerRegistrationResponse(error_code=problem.code)
        if before is not None and before.incarnation_id == request.incarnation_id:
            self._sessions.touch(request.broker_id, now_ms)
            records = self._amend(image, index, before, request)
            return records, BrokerRegistrationResponse(broker_epoch=before.broker_epoch)
        self._sessions.forget(request.broker_id)
        self._sessions.touch(request.broker_id, now_ms)
        broker = _broker(request, log_end_offset)
        records = [broker_record(broker), *self._leave(image, index, before, broker, request)]
        return records, BrokerRegistrationResponse(broker_epoch=broker.broker_epoch)

    def _check(
        self, image: MetadataImage, before: BrokerImage | None, request: BrokerRegistrationRequest, now_ms: int
    ) -> None:
        if request.cluster_id != self._policy.cluster_id:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        if before is not None and before.incarnation_id != request.incarnation_id:
            has_stopped = before.in_controlled_shutdown or request.previous_broker_epoch == before.broker_epoch
            if not has_stopped and not self._is_restarted(before, request, now_ms):
                raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        if request.is_migrating_zk_broker:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        _check_directories(image, request)
        _check_features(image.features, request.features)

    def _is_restarted(self, before: BrokerImage, request: BrokerRegistrationRequest, now_ms: int) -> bool:
        """The former incarnation has ended: its session is over, or it is silent and another process has its folders.

        A process locks its folders, so two have the same ones only if they were copied; then the one that is heard
        of keeps its place.
        """
        if not self._sessions.is_alive(before, now_ms):
            return True
        has_folders = bool(before.directories) and set(before.directories) == set(request.log_dirs)
        return has_folders and self._sessions.is_overdue(before.node_id, now_ms)

    def _leave(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        before: BrokerImage | None,
        broker: BrokerImage,
        request: BrokerRegistrationRequest,
    ) -> list[Message]:
        """The former incarnation's partitions. All in this one decision: the next controller could not tell any more
        from the registration that the stop was unclean."""
        rules = PartitionRules(image, self._policy, [broker])
        is_clean = before is not None and request.previous_broker_epoch == before.broker_epoch
        is_unclean = rules.has_eligible_replicas and not is_clean
        partitions = PartitionSet()
        partitions.update(index.in_sync_with(broker.node_id))
        if is_unclean:
            partitions.update(index.eligible_on(broker.node_id))
        stopped = broker.node_id if is_unclean else None
        changes = (rules.examine(key, stopped_uncleanly=stopped) for key in partitions)
        return [change for change in changes if change is not None]

    def _amend(
        self, image: MetadataImage, index: PartitionIndex, before: BrokerImage, request: BrokerRegistrationRequest
    ) -> list[Message]:
        """The same incarnation: its answer was lost, or its listeners or directories changed."""
        after = replace(
            _broker(request, before.broker_epoch),
            fenced=before.fenced,
            in_controlled_shutdown=before.in_controlled_shutdown,
            cordoned_directories=before.cordoned_directories,
        )
        if after == before:
            return []
        rules = PartitionRules(image, self._policy, [after])
        gone = (directory for directory in before.directories if directory not in after.directories)
        changes = (rules.examine(key) for directory in gone for key in index.in_directory(directory))
        return [broker_record(after), *(change for change in changes if change is not None)]

    def register_controller(self, image: MetadataImage, request: ControllerRegistrationRequest) -> Outcome:
        level = image.features.get(features.METADATA_VERSION, 0)
        if 0 < level < features.CONTROLLER_REGISTRATION_LEVEL:
            return [], ControllerRegistrationResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message="The current metadata.version is too old to support controller registrations.",
            )
        controller = ControllerImage(
            node_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            endpoints=_endpoints(request.listeners),
            features=_ranges(request.features),
        )
        is_known = image.controllers.get(request.controller_id) == controller
        return [] if is_known else [controller_record(controller)], ControllerRegistrationResponse(error_message=None)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    given = request.log_dirs
    if image.features.get(features.METADATA_VERSION, 0) >= features.DIRECTORY_ASSIGNMENT_LEVEL:
        if not given:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
        if any(int.from_bytes(directory, "big") < RESERVED_DIRECTORIES for directory in given):
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(given)) != len(given):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in image.brokers.values():
        # A data folder that was copied, or is given to two brokers: both would write as its owner.
        if broker.node_id != request.broker_id and not set(given).isdisjoint(broker.directories):
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"Broker {broker.node_id} has the same directory")


def _check_features(finalized: Mapping[str, int], supported: list[Any]) -> None:
    """Every finalized level must be one that the broker can read."""
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in supported}
    for name, level in finalized.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}.",
            )


def _broker(request: BrokerRegistrationRequest, broker_epoch: int) -> BrokerImage:
    return BrokerImage(
        node_id=request.broker_id,
        broker_epoch=broker_epoch,
        incarnation_id=request.incarnation_id,
        endpoints=_endpoints(request.listeners),
        features=_ranges(request.features),
        rack=request.rack,
        fenced=True,
        in_controlled_shutdown=False,
        directories=tuple(request.log_dirs),
    )


def _endpoints(listeners: list[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in listeners)


def _ranges(listed: list[Any]) -> tuple[tuple[str, int, int], ...]:
    return tuple((each.name, each.min_supported_version, each.max_supported_version) for each in listed)
