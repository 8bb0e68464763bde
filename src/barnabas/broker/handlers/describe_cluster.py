"""DescribeCluster 0–2: the cluster's id, controller and brokers, or its controllers (KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.model.errors import ErrorCode
from barnabas.runtime.authorized import ALL_CLUSTER_OPERATIONS
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


def handle(broker: Broker, exchange: Request, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == 2
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"The request was sent to an endpoint of brokers, and asks for type {request.endpoint_type}.",
        )
    response = DescribeClusterResponse(cluster_id=broker.cluster_id, controller_id=broker.node_id)
    for node in broker.image.brokers.values():
        endpoint = node.endpoint(exchange.listener)
        if endpoint is not None and (request.include_fenced_brokers or not node.fenced):
            response.brokers.append(
                DescribeClusterBroker(node.node_id, endpoint.host, endpoint.port, node.rack, node.fenced)
            )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response
