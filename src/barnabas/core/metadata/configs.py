"""Settings of topics and brokers: who set what, and what may be changed while brokers run.

A topic's value comes from the first of: the topic itself, this broker's dynamic settings, those of all brokers,
the broker's own file, the default (KIP-226).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.settings import InvalidSetting, Setting, SettingType, described
from barnabas.model.topic_settings import TopicSettings


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


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


def check_topic_configs(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Parsed only to be checked; the image keeps texts. Raises INVALID_CONFIG naming setting and value."""
    known = described(TopicSettings)
    checked = {}
    for key, text in configs:
        if key not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
        if text is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {key}")
        try:
            known[key][1].parse(text)
        except InvalidSetting as problem:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(problem)) from None
        checked[key] = text
    return checked


def altered(
    before: Mapping[str, str], changes: Sequence[tuple[str, int, str | None]], settings: Mapping[str, Setting]
) -> dict[str, str | None]:
    """What IncrementalAlterConfigs changes: key -> new text, or None for removal."""
    keys = [key for key, _, _ in changes]
    if len(set(keys)) != len(keys):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    result: dict[str, str | None] = {}
    for key, operation, text in changes:
        result[key] = _apply(settings.get(key), before.get(key), key, operation, text)
    return result


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
    current: list[Any] = list(entry.default if before is None else entry.parse(before))
    for part in (part.strip() for part in text.split(",")):
        if operation == Operation.APPEND and part not in current:
            current.append(part)
        elif operation == Operation.SUBTRACT and part in current:
            current.remove(part)
    return ",".join(current)


def resource_settings(resource_type: int, broker: Mapping[str, Setting]) -> Mapping[str, Setting]:
    if resource_type == TOPIC_RESOURCE:
        return {key: entry for key, (_, entry) in described(TopicSettings).items()}
    return broker
