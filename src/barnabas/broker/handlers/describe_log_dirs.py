"""DescribeLogDirs 1–5: the data folders, their partitions with sizes, and free space (KIP-113, KIP-827)."""

from __future__ import annotations

from barnabas.broker.context import Broker
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
    for partition in broker.partitions:
        name = partition.name
        if wanted is not None and name.partition not in wanted.get(name.topic, ()):
            continue
        folder = partition.data_folder
        entry = DescribeLogDirsPartition(name.partition, partition.size_bytes)
        by_directory.setdefault(folder, {}).setdefault(name.topic, []).append(entry)
    results = []
    for directory in broker.describe_directories():
        topics = by_directory.get(directory.path, {})
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
