"""The description of settings by DescribeConfigs, which brokers and controllers serve alike (KIP-133, 226, 569)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.core.metadata.configs import ConfigSource, Origin, origins
from barnabas.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.core.metadata.topics import check_name
from barnabas.model.broker_settings import FINER_UNITS, all_broker_settings
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.settings import Setting, SettingType, described
from barnabas.model.topic_settings import TopicSettings
from barnabas.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def describe(
    request: DescribeConfigsRequest, *, node_id: int, image: MetadataImage, static: Mapping[str, str]
) -> DescribeConfigsResponse:
    """``static`` are the settings of the node's file."""
    results = []
    # Each once: naming one again and again would make the answer larger than any request justifies.
    for resource in {(wanted.resource_type, wanted.resource_name): wanted for wanted in request.resources}.values():
        result = DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name)
        try:
            result.configs = [
                _describe(entry, found, resource.resource_type == TOPIC_RESOURCE, request)
                for entry, found in _settings(resource, node_id, image, static)
            ]
        except ApiError as problem:
            result.error_code, result.error_message = problem.code, problem.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _settings(
    resource: DescribeConfigsResource, node_id: int, image: MetadataImage, static: Mapping[str, str]
) -> Iterable[tuple[Setting, list[Origin]]]:
    """With where their values come from, the one in force first."""
    wanted = resource.configuration_keys
    if resource.resource_type == TOPIC_RESOURCE:
        check_name(resource.resource_name)
        if resource.resource_name not in image.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        entries = [entry for _, entry in described(TopicSettings).values()]
        topic: str | None = resource.resource_name
    elif resource.resource_type == BROKER_RESOURCE:
        if resource.resource_name not in ("", str(node_id)):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {node_id} or empty string, received {resource.resource_name}",
            )
        entries = list(all_broker_settings().values())
        topic = None
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    found = [
        (entry, origins(entry, node_id, image, topic, static)) for entry in entries if not wanted or entry.key in wanted
    ]
    if resource.resource_name == "":  # what is set for all brokers, and nothing of this one
        told = (
            (entry, [each for each in listed if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER])
            for entry, listed in found
        )
        return [(entry, listed) for entry, listed in told if listed]
    return found


def _describe(
    entry: Setting, found: list[Origin], of_topic: bool, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    sensitive = entry.type is SettingType.PASSWORD
    first = found[0]
    result = DescribeConfigsResourceResult(
        name=entry.key,
        value=None if sensitive else entry.normal(first.text),
        read_only=not of_topic and not entry.dynamic,
        config_source=first.source,
        is_sensitive=sensitive,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(origin.key, None if sensitive else entry.normal(origin.text), origin.source)
            for origin in found
            if origin.source is not ConfigSource.DEFAULT or _is_listed(entry, of_topic, origin)
        ]
    return result


def _is_listed(entry: Setting, of_topic: bool, default: Origin) -> bool:
    """Whether a default is that of a broker's setting: a topic's own is no synonym of anything."""
    if not of_topic:
        return default.text is not None
    return entry.synonym is not None and entry.synonym not in FINER_UNITS
