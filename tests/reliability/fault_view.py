"""What the cluster says about itself: leaders, the controller, coordinators, and whether all replicas are in sync."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from barnabas.app.local_cluster import LocalCluster
from barnabas.client.wire import Client
from barnabas.client.wire.errors import ClientError
from barnabas.client.wire.metadata import TopicInfo
from barnabas.model.errors import ApiError
from barnabas.model.ids import METADATA_TOPIC
from barnabas.net.local_ports import accepts
from barnabas.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
)
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

LOOK_S = 0.1
T = TypeVar("T")


class ClusterView:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def topics(self) -> dict[str, TopicInfo]:
        with Client(self._servers(), timeout_s=5) as client:
            return client.load(None)

    def leader_of(self, topic: str, partition: int) -> int:
        return self._ask(lambda: self.topics()[topic].partitions[partition].leader)

    def controller(self) -> int:
        return self._ask(lambda: self._quorum().leader_id)

    def raft_epoch(self) -> int:
        return self._quorum().leader_epoch

    def _quorum(self) -> DescribeQuorumResponsePartitionData:
        wanted = DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])
        with Client(self._servers(), timeout_s=5) as client:
            return client.call(DescribeQuorumRequest([wanted]), DescribeQuorumResponse).topics[0].partitions[0]

    def coordinator_of(self, group: str) -> int:
        def ask() -> int:
            with Client(self._servers(), timeout_s=5) as client:
                reply = client.call(FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse)
            return reply.coordinators[0].node_id

        return self._ask(ask)

    def _ask(self, question: Callable[[], int], timeout_s: float = 30.0) -> int:
        """Asks until the answer is a node. Raises TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        while (answer := _tolerant(question)) not in self._cluster.nodes:
            if time.monotonic() >= deadline_s:
                raise TimeoutError(f"the cluster names no such node (last answer: {answer})")
            time.sleep(LOOK_S)
        return answer

    def _servers(self) -> str:
        running = [node.address for node_id, node in self._cluster.nodes.items() if self._cluster.is_running(node_id)]
        return ",".join(running)

    def trouble(self) -> str | None:
        """Why the cluster is not healthy: what does not run, lacks a leader or an in-sync replica."""
        for node_id, node in self._cluster.nodes.items():
            if not self._cluster.is_running(node_id):
                return f"node {node_id} does not run"
            if not accepts(node.host, node.port):
                return f"node {node_id} does not serve"
        for node in self._cluster.nodes.values():
            if (problem := _trouble_at(node.address)) is not None:
                return f"node {node.node_id} says: {problem}"
        return None

    def wait_until_healthy(self, timeout_s: float) -> str | None:
        """What is still wrong when the time is up; None where all is well."""
        deadline_s = time.monotonic() + timeout_s
        while (problem := self.trouble()) is not None:
            if time.monotonic() >= deadline_s:
                return problem
            time.sleep(LOOK_S)
        return None


def _trouble_at(server: str) -> str | None:
    """What one broker knows: one that was cut off may not have heard the news yet."""
    try:
        with Client(server, timeout_s=5) as client:
            topics = client.load(None)
    except (ClientError, ApiError, OSError) as problem:
        return f"no metadata: {problem}"
    for topic in topics.values():
        for partition in topic.partitions.values():
            missing = sorted(set(partition.replicas) - set(partition.in_sync_replicas))
            if partition.leader < 0 or missing:
                return f"{topic.name}-{partition.partition}: leader {partition.leader}, not in sync: {missing}"
    return None


def _tolerant(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except (ClientError, ApiError, KeyError, IndexError, OSError):
        return None
