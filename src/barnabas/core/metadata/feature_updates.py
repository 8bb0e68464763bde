"""UpdateFeatures: finalizes feature levels that every broker and controller supports (KIP-584, KIP-778, KIP-1022)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from barnabas.core.metadata.configs import MIN_IN_SYNC, origins
from barnabas.core.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KNOWN_RANGES,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from barnabas.core.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.core.metadata.index import PartitionIndex
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.settings import described
from barnabas.model.topic_settings import TopicSettings
from barnabas.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import FeatureLevelRecord
from barnabas.wire.stored.metadata_topics import ConfigRecord, PartitionChangeRecord

REQUIRED_METADATA_VERSION = {ELIGIBLE_LEADER_REPLICAS: 23, "group.version": 22}
"""Feature -> the metadata.version that knows its records."""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(
    image: MetadataImage, index: PartitionIndex, policy: MetadataPolicy, request: UpdateFeaturesRequest
) -> Outcome:
    proposed = {**image.features, **{each.feature: each.max_version_level for each in request.feature_updates}}
    records: list[Message] = []
    try:
        if len({each.feature for each in request.feature_updates}) != len(request.feature_updates):
            raise ApiError(ErrorCode.INVALID_REQUEST, "A feature is named twice.")
        for update in request.feature_updates:
            _check(image, policy, update, proposed)
            if update.max_version_level != image.features.get(update.feature, 0):
                records.append(FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level))
        records += _eligible_records(image, index, policy, proposed)
    except ApiError as problem:
        return [], UpdateFeaturesResponse(error_code=problem.code, error_message=problem.message)
    results = [UpdatableFeatureResult(each.feature, 0, None) for each in request.feature_updates]
    return [] if request.validate_only else records, UpdateFeaturesResponse(error_message=None, results=results)


def _check(image: MetadataImage, policy: MetadataPolicy, update: FeatureUpdateKey, proposed: Mapping[str, int]) -> None:
    name, level = update.feature, update.max_version_level
    current = image.features.get(name, 0)
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type  # version 0 has the flag only
    problem = _unsupported(image, policy, name, level)
    required = REQUIRED_METADATA_VERSION.get(name, 0)
    if kind not in tuple(UpgradeType):
        problem = "The controller does not support the given upgrade type."
    elif level < 0:
        problem = "A feature version cannot be less than 0."
    elif problem is not None:
        pass
    elif level < current and kind == UpgradeType.UPGRADE:
        problem = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif level > current and kind != UpgradeType.UPGRADE:
        problem = "Can't downgrade to a newer version."
    elif name == METADATA_VERSION and level < current:
        problem = "Refusing to perform the requested downgrade because it might delete metadata information."
    elif level and proposed.get(METADATA_VERSION, 0) < required:
        problem = f"{name} requires metadata.version {required}."
    if problem is not None:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {problem}"
        )


def _unsupported(image: MetadataImage, policy: MetadataPolicy, name: str, level: int) -> str | None:
    """Why the cluster cannot have the level, or None. Level 0 is a feature that is off."""
    if name == KRAFT_VERSION:
        return "It belongs to the quorum and is not changed here."
    for node, ranges in _supported(image, policy):
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            does = f"only supports versions {low}-{high}" if high else "does not support this feature"
            return f"{node} {does}."
    return None


def _supported(image: MetadataImage, policy: MetadataPolicy) -> Iterator[tuple[str, Mapping[str, tuple[int, int]]]]:
    yield f"Local controller {policy.node_id}", KNOWN_RANGES
    for broker in image.brokers.values():
        yield f"Broker {broker.node_id}", {name: (low, high) for name, low, high in broker.features}
    for controller in image.controllers.values():
        if controller.node_id != policy.node_id:
            yield f"Controller {controller.node_id}", {name: (low, high) for name, low, high in controller.features}


def _eligible_records(
    image: MetadataImage, index: PartitionIndex, policy: MetadataPolicy, proposed: Mapping[str, int]
) -> Iterator[Message]:
    """What keeps partitions safe when eligible leader replicas are turned on or off (KIP-966)."""
    was, will_be = (bool(levels.get(ELIGIBLE_LEADER_REPLICAS, 0)) for levels in (image.features, proposed))
    if will_be and not was and MIN_IN_SYNC not in image.configs.get((BROKER_RESOURCE, ""), {}):
        # One value for all: brokers must not disagree about how small an in-sync set may be.
        _, entry = described(TopicSettings)[MIN_IN_SYNC]
        value = origins(entry, policy.node_id, image, "", policy.static_settings)[0].text
        yield ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_IN_SYNC, value=value)
    if was and not will_be:
        partitions = index.eligible_partitions()
        partitions.update(index.leaderless)
        for topic_id, number in partitions:
            yield from _without_eligible(image, topic_id, number)


def _without_eligible(image: MetadataImage, topic_id: bytes, number: int) -> Iterator[Message]:
    """Who may lead without loss is kept in the in-sync set, as it is where there are no eligible replicas."""
    partition = image.topics_by_id[topic_id].partitions[number]
    if not partition.eligible_leader_replicas and not partition.last_known_eligible:
        return
    record = PartitionChangeRecord(
        partition_id=number, topic_id=topic_id, eligible_leader_replicas=[], last_known_elr=[]
    )
    if not partition.in_sync_replicas:
        record.isr = list(partition.eligible_leader_replicas or partition.last_known_eligible)
    yield record
