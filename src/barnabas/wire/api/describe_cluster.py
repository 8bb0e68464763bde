"""DescribeCluster: the nodes and the id of the cluster."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32


class DescribeClusterRequest(Message):
    api_key = 60
    versions = "0-2"
    flexible = "0+"
    served_by = ("broker", "controller")

    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[int8, In("1+")] = 1
    include_fenced_brokers: Annotated[bool, In("2+")] = False


class DescribeClusterBroker(Struct):
    broker_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None
    is_fenced: Annotated[bool, In("2+")] = False


class DescribeClusterResponse(Message):
    api_key = 60
    versions = "0-2"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[int8, In("1+")] = 1
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = EMPTY
    cluster_authorized_operations: int32 = -(1 << 31)
