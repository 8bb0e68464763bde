"""What the processes and the brokers of a local cluster say about its state."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from msgspec import Struct

from barnabas.app.local_cluster import LocalCluster
from barnabas.client.wire import BrokerError, Client, ClientError, ConnectionSettings, TopicInfo, admin, cluster
from barnabas.client.wire.metrics import describe_metrics
from barnabas.model.ids import TopicPartition

IMPATIENT = ConnectionSettings(client_id="barnabas-status", connect_timeout_s=1.0, request_timeout_s=2.0)
PRODUCE, FETCH = 0, 1


class NodeStatus(Struct, kw_only=True):
    node_id: int
    address: str
    pid: int | None
    state: str
    """serving, fenced (starting, or away for too long), paused, stopped."""
    role: str = "broker, voter"
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0


class ClusterStatus(Struct, kw_only=True):
    cluster_id: str
    nodes: list[NodeStatus]
    controller: int | None = None
    topics: int | None = None
    """None where no broker answers; likewise the numbers of partitions."""
    partitions: int | None = None
    under_replicated: int | None = None
    offline: int | None = None
    messages_per_second: float | None = None
    bytes_in_per_second: float | None = None
    bytes_out_per_second: float | None = None


class _Counted(Struct):
    """Totals at one moment, of what could be asked."""

    at_s: float
    offsets: dict[TopicPartition, int]
    traffic: dict[int, tuple[int, int]]


class StatusReader:
    """Asks again and again; rates are those between two answers."""

    def __init__(self, local: LocalCluster) -> None:
        self._local = local
        self._client: Client | None = None
        self._before: _Counted | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def read(self) -> ClusterStatus:
        nodes = {node_id: self._process_status(node_id) for node_id in self._local.nodes}
        status = ClusterStatus(cluster_id=self._local.cluster_id, nodes=list(nodes.values()))
        awake = [node.address for node in nodes.values() if node.state == "serving"]
        if not awake:
            self.close()
            return status
        with contextlib.suppress(ClientError, BrokerError):
            self._ask(status, nodes, ",".join(awake))
            return status
        self.close()  # the broker that was asked is gone: the next attempt asks another
        return status

    def _process_status(self, node_id: int) -> NodeStatus:
        node, pid = self._local.nodes[node_id], self._local.pid(node_id)
        state = "stopped" if pid is None else "paused" if self._local.is_paused(node_id) else "serving"
        return NodeStatus(node_id=node_id, address=node.address, pid=pid, state=state)

    def _ask(self, status: ClusterStatus, nodes: dict[int, NodeStatus], servers: str) -> None:
        if self._client is None:
            self._client = Client(servers, IMPATIENT, timeout_s=2.0)
        client = self._client
        unfenced = {broker.node_id for broker in cluster.list_brokers(client) if not broker.is_fenced}
        for node in nodes.values():
            if node.state == "serving" and node.node_id not in unfenced:
                node.state = "fenced"
        topics = client.load(None)
        _count_partitions(status, nodes, topics)
        with contextlib.suppress(BrokerError):  # without an active controller the rest is still worth showing
            quorum = cluster.describe_quorum(client)
            status.controller = quorum.leader_id
            for node in nodes.values():
                is_voter = any(voter.node_id == node.node_id for voter in quorum.voters)
                kind = "active controller" if node.node_id == quorum.leader_id else "voter"
                node.role = f"broker, {kind}" if is_voter else "broker"
        self._rate(status, self._count(client, nodes, topics))

    def _count(self, client: Client, nodes: dict[int, NodeStatus], topics: dict[str, TopicInfo]) -> _Counted:
        serving = {node.node_id for node in nodes.values() if node.state == "serving"}
        wanted = {
            TopicPartition(topic.name, part.partition): admin.LATEST
            for topic in topics.values()
            if not topic.is_internal
            for part in topic.partitions.values()
            if part.leader in serving
        }
        counted = _Counted(time.monotonic(), {}, {})
        with contextlib.suppress(ClientError, BrokerError):
            counted.offsets = {place: found.offset for place, found in admin.list_offsets(client, wanted).items()}
        for node_id in serving:
            with contextlib.suppress(ClientError, BrokerError):
                apis = {api.api_key: api for api in describe_metrics(client, [PRODUCE, FETCH], node_id=node_id)}
                counted.traffic[node_id] = apis[PRODUCE].bytes_in, apis[FETCH].bytes_out
        return counted

    def _rate(self, status: ClusterStatus, now: _Counted) -> None:
        before, self._before = self._before, now
        if before is None:
            return
        passed_s = max(now.at_s - before.at_s, 1e-3)
        messages = sum(max(0, end - before.offsets.get(place, end)) for place, end in now.offsets.items())
        status.messages_per_second = messages / passed_s
        grown = [_grown(before.traffic.get(node_id), totals) for node_id, totals in now.traffic.items()]
        status.bytes_in_per_second = sum(received for received, _ in grown) / passed_s
        status.bytes_out_per_second = sum(sent for _, sent in grown) / passed_s


def _grown(before: tuple[int, int] | None, now: tuple[int, int]) -> tuple[int, int]:
    """A broker that has started again counts from zero."""
    if before is None:
        return 0, 0
    return max(0, now[0] - before[0]), max(0, now[1] - before[1])


def _count_partitions(status: ClusterStatus, nodes: dict[int, NodeStatus], topics: dict[str, TopicInfo]) -> None:
    parts = [part for topic in topics.values() for part in topic.partitions.values()]
    status.topics, status.partitions = len(topics), len(parts)
    status.under_replicated = sum(len(part.in_sync_replicas) < len(part.replicas) for part in parts)
    status.offline = sum(part.leader < 0 for part in parts)
    for part in parts:
        if part.leader in nodes:
            nodes[part.leader].leaders += 1
        for replica in part.replicas:
            if replica in nodes:
                nodes[replica].replicas += 1
                nodes[replica].out_of_sync += replica not in part.in_sync_replicas


def as_json(status: ClusterStatus, folder: str) -> dict[str, Any]:
    fields = {name: getattr(status, name) for name in ClusterStatus.__struct_fields__ if name != "nodes"}
    nodes = [{name: getattr(node, name) for name in NodeStatus.__struct_fields__} for node in status.nodes]
    return {"folder": folder, **fields, "nodes": nodes}
