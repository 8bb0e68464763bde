"""DescribeLogDirs 1–5: the data folders, their partitions with sizes, and free space (KIP-113, KIP-827).

A replica that is being moved is in two folders: as it is served, and as a future replica with its lag.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.context import Broker
from barnabas.runtime.partition import Partition
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(broker: Broker, exchange: Request, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {topic.topic: set(topic.partitions) for topic in request.topics}
    by_directory: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    for partition, folder, entry in _replicas(broker):
        name = partition.name
        if wanted is None or name.partition in wanted.get(name.topic, ()):
            by_directory.setdefault(folder, {}).setdefault(name.topic, []).append(entry)
    results = []
    for directory in broker.describe_directories():
        topics = {} if directory.error_code else by_directory.get(directory.path, {})
        results.append(
            DescribeLogDirsResult(
                directory.error_code,
                directory.path,
                [DescribeLogDirsTopic(topic, partitions) for topic, partitions in topics.items()],
                directory.total_bytes,
                directory.usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _replicas(broker: Broker) -> Iterator[tuple[Partition, str, DescribeLogDirsPartition]]:
    for partition in broker.partitions:
        lag = max(0, partition.high_watermark - partition.log_end_offset)
        yield (
            partition,
            partition.data_folder,
            DescribeLogDirsPartition(partition.name.partition, partition.size_bytes, lag),
        )
    for partition, future in broker.moves().futures():
        lag = max(0, partition.log_end_offset - future.log_end_offset)
        yield (
            partition,
            future.directory.rpartition("/")[0],
            DescribeLogDirsPartition(partition.name.partition, future.size_bytes, lag, True),
        )
