"""Metadata: brokers, topics, and who leads which partition."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Null, Struct, int16, int32, uuid


class MetadataRequestTopic(Struct):
    topic_id: Annotated[uuid, In("10+")] = ZERO_UUID
    name: Annotated[str | None, Null("10+")] = ""


class MetadataRequest(Message):
    api_key = 3
    versions = "0-13"
    flexible = "9+"
    served_by = ("broker",)

    topics: Annotated[list[MetadataRequestTopic] | None, Null("1+")] = EMPTY
    allow_auto_topic_creation: Annotated[bool, In("4+")] = True
    include_cluster_authorized_operations: Annotated[bool, In("8-10")] = False
    include_topic_authorized_operations: Annotated[bool, In("8+")] = False


class MetadataResponseBroker(Struct):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: Annotated[str | None, In("1+")] = None


class MetadataResponsePartition(Struct):
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: Annotated[int32, In("7+")] = -1
    replica_nodes: list[int32] = EMPTY
    isr_nodes: list[int32] = EMPTY
    offline_replicas: Annotated[list[int32], In("5+")] = EMPTY


class MetadataResponseTopic(Struct):
    error_code: int16 = 0
    name: Annotated[str | None, Null("12+")] = ""
    topic_id: Annotated[uuid, In("10+")] = ZERO_UUID
    is_internal: Annotated[bool, In("1+")] = False
    partitions: list[MetadataResponsePartition] = EMPTY
    topic_authorized_operations: Annotated[int32, In("8+")] = -(1 << 31)


class MetadataResponse(Message):
    api_key = 3
    versions = "0-13"
    flexible = "9+"

    throttle_time_ms: Annotated[int32, In("3+")] = 0
    brokers: list[MetadataResponseBroker] = EMPTY
    cluster_id: Annotated[str | None, In("2+")] = None
    controller_id: Annotated[int32, In("1+")] = -1
    topics: list[MetadataResponseTopic] = EMPTY
    cluster_authorized_operations: Annotated[int32, In("8-10")] = -(1 << 31)
    error_code: Annotated[int16, In("13+")] = 0
