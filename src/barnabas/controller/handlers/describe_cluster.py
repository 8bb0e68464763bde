"""DescribeCluster 1–2: the controllers of the cluster, for clients that talk to them (KIP-919)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.model.errors import ErrorCode
from barnabas.runtime.authorized import ALL_CLUSTER_OPERATIONS
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


def handle(controller: Controller, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    if message.endpoint_type != CONTROLLERS:
        is_known = message.endpoint_type == BROKERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"The request was sent to a controller, and asks for endpoints of type "
            f"{message.endpoint_type}.",
        )
    response = DescribeClusterResponse(
        endpoint_type=CONTROLLERS, cluster_id=controller.policy.cluster_id, controller_id=controller.driver.leader_id
    )
    for node in controller.committed.controllers.values():
        endpoint = next((each for each in node.endpoints if each.name == request.listener), None)
        if endpoint is not None:
            response.brokers.append(DescribeClusterBroker(node.node_id, endpoint.host, endpoint.port))
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response
