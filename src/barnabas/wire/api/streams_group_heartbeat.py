"""StreamsGroupHeartbeat: a member of a streams group joins, stays, reconciles or leaves (KIP-1071)."""

from msgspec import field

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32, int64, uint16


class KeyValue(Struct):
    key: str = ""
    value: str = ""


class TopicInfo(Struct):
    name: str = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[KeyValue] = EMPTY


class CopartitionGroup(Struct):
    source_topics: list[int16] = EMPTY
    source_topic_regex: list[int16] = EMPTY
    repartition_source_topics: list[int16] = EMPTY


class Subtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = EMPTY
    source_topic_regex: list[str] = EMPTY
    state_changelog_topics: list[TopicInfo] = EMPTY
    repartition_sink_topics: list[str] = EMPTY
    repartition_source_topics: list[TopicInfo] = EMPTY
    copartition_groups: list[CopartitionGroup] = EMPTY


class Topology(Struct):
    epoch: int32 = 0
    subtopologies: list[Subtopology] = EMPTY


class TaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[int32] = EMPTY


class Endpoint(Struct):
    host: str = ""
    port: uint16 = 0


class TaskOffset(Struct):
    subtopology_id: str = ""
    partition: int32 = 0
    offset: int64 = 0


class StreamsGroupHeartbeatRequest(Message):
    api_key = 88
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    endpoint_information_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class Status(Struct):
    status_code: int8 = 0
    status_detail: str = ""


class TopicPartition(Struct):
    topic: str = ""
    partitions: list[int32] = EMPTY


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = field(default_factory=Endpoint)
    active_partitions: list[TopicPartition] = EMPTY
    standby_partitions: list[TopicPartition] = EMPTY


class StreamsGroupHeartbeatResponse(Message):
    api_key = 88
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    acceptable_recovery_lag: int32 = 0
    task_offset_interval_ms: int32 = 0
    status: list[Status] | None = EMPTY
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
