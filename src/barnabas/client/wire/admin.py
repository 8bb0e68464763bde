"""Administration: topics, settings, offsets, data folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.client.wire.client import Client
from barnabas.client.wire.connection import Connection
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, check
from barnabas.client.wire.routed import Answer, ask_leaders, by_topic
from barnabas.model.ids import TopicPartition
from barnabas.wire.api import create_partitions as partitions_api
from barnabas.wire.api import create_topics as create_api
from barnabas.wire.api import delete_records as records_api
from barnabas.wire.api import delete_topics as delete_api
from barnabas.wire.api import describe_configs as configs_api
from barnabas.wire.api import describe_log_dirs as dirs_api
from barnabas.wire.api import incremental_alter_configs as alter_api
from barnabas.wire.api import list_offsets as offsets_api
from barnabas.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3

SERVER_TIMEOUT_MS = 20_000
"""How long a broker may take for a change of topics; below what a request is waited for."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a setting's value comes from (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str | None


class ListedOffset(NamedTuple):
    offset: int
    """-1 where no record is that young."""
    timestamp: int
    leader_epoch: int


class LogDirectory(NamedTuple):
    node_id: int
    path: str
    code: int
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]


def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> create_api.CreatableTopicResult:
    """-1 leaves a number to the broker (KIP-464). Raises BrokerError."""
    topic = create_api.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[create_api.CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
    )
    request = create_api.CreateTopicsRequest(topics=[topic], timeout_ms=SERVER_TIMEOUT_MS, validate_only=validate_only)
    reply = client.call(request, create_api.CreateTopicsResponse, codes=lambda reply: _codes(reply.topics))
    (result,) = reply.topics
    check(result.error_code, f"topic {name}", result.error_message)
    return result


def delete_topics(client: Client, names: Sequence[str]) -> dict[str, BrokerError | None]:
    """What became of each."""
    request = delete_api.DeleteTopicsRequest(
        topic_names=list(names),
        topics=[delete_api.DeleteTopicState(name=name) for name in names],
        timeout_ms=SERVER_TIMEOUT_MS,
    )
    reply = client.call(request, delete_api.DeleteTopicsResponse, codes=lambda reply: _codes(reply.responses))
    client.forget(names)
    return {
        item.name or "": BrokerError(item.error_code, f"topic {item.name}", item.error_message)
        if item.error_code
        else None
        for item in reply.responses
    }


def create_partitions(client: Client, name: str, count: int) -> None:
    """Grows a topic to ``count`` partitions. Raises BrokerError."""
    topic = partitions_api.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = partitions_api.CreatePartitionsRequest(topics=[topic], timeout_ms=SERVER_TIMEOUT_MS)
    reply = client.call(request, partitions_api.CreatePartitionsResponse, codes=lambda reply: _codes(reply.results))
    client.forget([name])
    for result in reply.results:
        check(result.error_code, f"topic {name}", result.error_message)


def describe_configs(
    client: Client,
    kind: ResourceType,
    names: Iterable[str],
    *,
    keys: Sequence[str] | None = None,
    documentation: bool = False,
) -> dict[str, list[ConfigEntry]]:
    """The settings of topics or brokers, by name. A broker is asked about itself. Raises BrokerError."""
    found: dict[str, list[ConfigEntry]] = {}
    asked = list(names)
    groups = [[name] for name in asked] if kind is ResourceType.BROKER else [asked]
    for group in groups:
        wanted = None if keys is None else list(keys)
        resources = [configs_api.DescribeConfigsResource(kind, name, wanted) for name in group]
        reply = client.call(
            configs_api.DescribeConfigsRequest(resources=resources, include_documentation=documentation),
            configs_api.DescribeConfigsResponse,
            node_id=int(group[0]) if kind is ResourceType.BROKER and group[0] else None,
            codes=lambda reply: _codes(reply.results),
        )
        for result in reply.results:
            check(result.error_code, f"{kind.name.lower()} {result.resource_name}", result.error_message)
            found[result.resource_name] = [_config(item) for item in result.configs]
    return found


def alter_configs(
    client: Client,
    kind: ResourceType,
    name: str,
    *,
    changed: Mapping[str, str] | None = None,
    deleted: Iterable[str] = (),
) -> None:
    """Sets some settings and gives others back their default, all or none of them. Raises BrokerError."""
    configs = [alter_api.AlterableConfig(key, 0, value) for key, value in (changed or {}).items()]
    configs += [alter_api.AlterableConfig(key, 1, None) for key in deleted]
    request = alter_api.IncrementalAlterConfigsRequest(resources=[alter_api.AlterConfigsResource(kind, name, configs)])
    reply = client.call(
        request,
        alter_api.IncrementalAlterConfigsResponse,
        node_id=int(name) if kind is ResourceType.BROKER and name else None,
        codes=lambda reply: _codes(reply.responses),
    )
    for result in reply.responses:
        check(result.error_code, f"{kind.name.lower()} {name}", result.error_message)


def list_offsets(
    client: Client, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, ListedOffset]:
    """The first offset at or after each timestamp, or at EARLIEST, LATEST, MAX_TIMESTAMP. Raises BrokerError."""

    def ask(connection: Connection, group: list[TopicPartition]) -> Iterable[tuple[Answer, ListedOffset]]:
        topics = [
            offsets_api.ListOffsetsTopic(
                name, [offsets_api.ListOffsetsPartition(partition_index=n, timestamp=time) for n, time in parts]
            )
            for name, parts in by_topic({item: timestamps[item] for item in group})
        ]
        request = offsets_api.ListOffsetsRequest(
            replica_id=-1, isolation_level=int(read_committed), topics=topics, timeout_ms=SERVER_TIMEOUT_MS
        )
        for found in connection.request(request, offsets_api.ListOffsetsResponse).topics:
            for part in found.partitions:
                answer = Answer(TopicPartition(found.name, part.partition_index), part.error_code)
                yield answer, ListedOffset(part.offset, part.timestamp, part.leader_epoch)

    return ask_leaders(client, timestamps, ask)


def delete_records(client: Client, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Drops what is before each offset (-1: everything); returns where the partitions begin now."""

    def ask(connection: Connection, group: list[TopicPartition]) -> Iterable[tuple[Answer, int]]:
        topics = [
            records_api.DeleteRecordsTopic(name, [records_api.DeleteRecordsPartition(*part) for part in parts])
            for name, parts in by_topic({item: offsets[item] for item in group})
        ]
        request = records_api.DeleteRecordsRequest(topics=topics, timeout_ms=SERVER_TIMEOUT_MS)
        for found in connection.request(request, records_api.DeleteRecordsResponse).topics:
            for part in found.partitions:
                yield Answer(TopicPartition(found.name, part.partition_index), part.error_code), part.low_watermark

    return ask_leaders(client, offsets, ask)


def describe_log_dirs(
    client: Client, topics: Mapping[str, Sequence[int]] | None = None, *, skip_unavailable: bool = False
) -> list[LogDirectory]:
    """The folders of every broker; of all partitions, or of those named. Raises BrokerError.

    ``skip_unavailable`` leaves out brokers that cannot be reached at once: one may have just stopped.
    """
    wanted = None if topics is None else [dirs_api.DescribableLogDirTopic(name, list(p)) for name, p in topics.items()]
    found: list[LogDirectory] = []
    for node_id in client.node_ids():
        request = dirs_api.DescribeLogDirsRequest(topics=wanted)
        try:
            if skip_unavailable:
                reply = client.node(node_id).request(request, dirs_api.DescribeLogDirsResponse)
            else:
                reply = client.call(request, dirs_api.DescribeLogDirsResponse, node_id=node_id)
        except BrokerUnavailable:
            if not skip_unavailable:
                raise
            continue
        check(reply.error_code, f"broker {node_id}")
        found += [_log_directory(node_id, item) for item in reply.results]
    return found


def describe_cluster(client: Client) -> DescribeClusterResponse:
    reply = client.call(DescribeClusterRequest(), DescribeClusterResponse, codes=lambda reply: [reply.error_code])
    check(reply.error_code, "cluster", reply.error_message)
    return reply


def _codes(
    results: Iterable[
        create_api.CreatableTopicResult
        | delete_api.DeletableTopicResult
        | partitions_api.CreatePartitionsTopicResult
        | configs_api.DescribeConfigsResult
        | alter_api.AlterConfigsResourceResponse
    ],
) -> list[int]:
    return [result.error_code for result in results]


def _config(item: configs_api.DescribeConfigsResourceResult) -> ConfigEntry:
    try:
        source = ConfigSource(item.config_source)
    except ValueError:
        source = ConfigSource.UNKNOWN
    return ConfigEntry(item.name, item.value, source, item.read_only, item.is_sensitive, item.documentation)


def _log_directory(node_id: int, item: dirs_api.DescribeLogDirsResult) -> LogDirectory:
    sizes = {
        TopicPartition(topic.name, part.partition_index): part.partition_size
        for topic in item.topics
        for part in topic.partitions
        if not part.is_future_key
    }
    return LogDirectory(node_id, item.log_dir, item.error_code, item.total_bytes, item.usable_bytes, sizes)
