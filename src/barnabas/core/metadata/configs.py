"""Settings of topics and brokers: the source of each value, and which can be changed while brokers run.

A topic's value comes from the first of: the topic itself, this broker's dynamic settings, those of all brokers,
the broker's own file, the default (KIP-226).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.core.metadata.features import has_eligible_replicas
from barnabas.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage, Resource
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.broker_settings import TIME_ALIASES
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.kafka_settings import WITHOUT_EFFECT
from barnabas.model.settings import InvalidSetting, Setting, SettingType, described
from barnabas.model.topic_settings import TopicSettings
from barnabas.wire.api import alter_configs, incremental_alter_configs
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import ConfigRecord

MIN_IN_SYNC = "min.insync.replicas"


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


DYNAMIC_SOURCES = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one value (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Origin(NamedTuple):
    """One place where a value may come from."""

    key: str
    text: str | None
    source: ConfigSource


def origins(
    entry: Setting, node_id: int, image: MetadataImage, topic: str | None, static: Mapping[str, str]
) -> list[Origin]:
    """Where a setting's value comes from, the one in force first."""
    found = []
    if topic is not None:
        own = image.topic_configs(topic).get(entry.key)
        if own is not None:
            found.append(Origin(entry.key, own, ConfigSource.TOPIC))
    key = entry.key if topic is None else entry.synonym
    if key is not None:
        for name, source in ((str(node_id), ConfigSource.DYNAMIC_BROKER), ("", ConfigSource.DYNAMIC_DEFAULT_BROKER)):
            text = image.configs.get((BROKER_RESOURCE, name), {}).get(key)
            if text is not None:
                found.append(Origin(key, text, source))
        if key in static:
            found.append(Origin(key, static[key], ConfigSource.STATIC_BROKER))
    found.append(Origin(key or entry.key, entry.render(entry.default), ConfigSource.DEFAULT))
    return found


def topic_settings(image: MetadataImage, topic: str, node_id: int, static: Mapping[str, str]) -> TopicSettings:
    """The settings in force for a topic on a broker."""
    texts = {}
    for key, (_, entry) in described(TopicSettings).items():
        first = origins(entry, node_id, image, topic, static)[0]
        if first.source is not ConfigSource.DEFAULT and first.text is not None:
            texts[key] = first.text
    return TopicSettings.parse(texts)


# Changing


def check_topic_configs(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """What the topic has with the changes, checked. Raises INVALID_CONFIG naming setting and value."""
    known = described(TopicSettings)
    after = {key: text for key, text in before.items() if key not in changes}
    for key, text in changes.items():
        if key not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
        if text is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {key}")
        after[key] = text
    try:
        conflict = TopicSettings.parse(after).conflict()
    except InvalidSetting as problem:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(problem)) from None
    if conflict:
        raise ApiError(ErrorCode.INVALID_CONFIG, conflict)
    return after


def records_of(resource: Resource, changes: Mapping[str, str | None] | Mapping[str, str]) -> list[Message]:
    return [
        ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=key, value=text)
        for key, text in changes.items()
    ]


class Configs:
    """Decisions about settings."""

    def __init__(self, policy: MetadataPolicy) -> None:
        self._policy = policy

    def alter_incrementally(
        self, image: MetadataImage, request: incremental_alter_configs.IncrementalAlterConfigsRequest
    ) -> Outcome:
        def changes(resource: Resource, given: Any) -> dict[str, str | None]:
            operations = [(config.name, config.config_operation, config.value) for config in given]
            return self._altered(resource, image.configs.get(resource, {}), operations)

        records, responses = self._decide(
            image, request, changes, incremental_alter_configs.AlterConfigsResourceResponse
        )
        return records, incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)

    def replace(self, image: MetadataImage, request: alter_configs.AlterConfigsRequest) -> Outcome:
        """The older call, which replaces everything that a resource has."""

        def changes(resource: Resource, given: Any) -> dict[str, str | None]:
            operations = [(config.name, int(Operation.SET), config.value) for config in given]
            return dict.fromkeys(image.configs.get(resource, {})) | self._altered(resource, {}, operations)

        records, responses = self._decide(image, request, changes, alter_configs.AlterConfigsResourceResponse)
        return records, alter_configs.AlterConfigsResponse(responses=responses)

    def _decide(
        self,
        image: MetadataImage,
        request: Any,
        changes: Callable[[Resource, Any], dict[str, str | None]],
        answer: Callable[..., Any],
    ) -> tuple[list[Message], list[Any]]:
        counts = Counter((entry.resource_type, entry.resource_name) for entry in request.resources)
        records: list[Message] = []
        responses: dict[Resource, Any] = {}
        for entry in request.resources:
            resource = (entry.resource_type, entry.resource_name)
            response = answer(resource_type=resource[0], resource_name=resource[1], error_message=None)
            responses[resource] = response
            try:
                if counts[resource] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                _check_exists(image, resource)
                records += self._change(image, resource, changes(resource, entry.configs))
            except ApiError as problem:
                response.error_code, response.error_message = problem.code, problem.message
        return [] if request.validate_only else records, list(responses.values())

    def _altered(
        self, resource: Resource, before: Mapping[str, str], operations: Sequence[tuple[str, int, str | None]]
    ) -> dict[str, str | None]:
        settings = self._settings(resource[0])
        changed: dict[str, str | None] = {}
        for key, operation, text in operations:
            if key in changed:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            changed[key] = _apply(settings.get(key), before.get(key), key, operation, text)
        return changed

    def _settings(self, resource_type: int) -> Mapping[str, Setting]:
        if resource_type == TOPIC_RESOURCE:
            return {key: entry for key, (_, entry) in described(TopicSettings).items()}
        return self._policy.broker_settings

    def _change(self, image: MetadataImage, resource: Resource, changes: Mapping[str, str | None]) -> list[Message]:
        before = image.configs.get(resource, {})
        given = {key: text for key, text in changes.items() if text is not None}
        if resource[0] == TOPIC_RESOURCE:
            kept = {key: text for key, text in before.items() if key not in changes}
            check_topic_configs(kept, given)
        else:
            _check_min_in_sync(image, resource, changes)
            self._check_broker_configs(given)
        return records_of(resource, {key: text for key, text in changes.items() if before.get(key) != text})

    def _check_broker_configs(self, given: Mapping[str, str]) -> None:
        for key, text in given.items():
            entry = self._policy.broker_settings.get(key)
            if entry is None and key in WITHOUT_EFFECT:
                continue
            if entry is None and key not in TIME_ALIASES:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {key}")
            if entry is None or not entry.dynamic:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{key}]")
            try:
                entry.parse(text)
            except InvalidSetting as problem:
                raise ApiError(ErrorCode.INVALID_REQUEST, str(problem)) from None


def _check_min_in_sync(image: MetadataImage, resource: Resource, changes: Mapping[str, str | None]) -> None:
    """With eligible leader replicas there is one value for all brokers, always (KIP-966)."""
    if MIN_IN_SYNC not in changes or not has_eligible_replicas(image.features):
        return
    if resource[1]:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_IN_SYNC} cannot be altered while ELR is enabled.")
    if changes[MIN_IN_SYNC] is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_IN_SYNC} cannot be removed while ELR is enabled.")


def _check_exists(image: MetadataImage, resource: Resource) -> None:
    resource_type, name = resource
    if resource_type == TOPIC_RESOURCE:
        if name not in image.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == BROKER_RESOURCE:
        if name and name not in map(str, image.brokers):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"No broker with id {name} found; '' stands for all.")
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")


def _apply(entry: Setting | None, before: str | None, key: str, operation: int, text: str | None) -> str | None:
    if operation == Operation.DELETE:
        return None
    if text is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {key}")
    if operation == Operation.SET:
        return text
    if operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} for config {key}")
    if entry is None or entry.type is not SettingType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Can't {Operation(operation).name} to key {key} because its type is not LIST."
        )
    return _edited_list(entry, before, operation, text)


def _edited_list(entry: Setting, before: str | None, operation: int, text: str) -> str:
    current = list(entry.default or ()) if before is None else _parts(before)
    for part in _parts(text):
        if operation == Operation.APPEND and part not in current:
            current.append(part)
        elif operation == Operation.SUBTRACT and part in current:
            current.remove(part)
    return ",".join(current)


def _parts(text: str) -> list[str]:
    return [part for part in (part.strip() for part in text.split(",")) if part]
