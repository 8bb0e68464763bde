"""StreamsGroupDescribe: streams groups, their topologies and members (KIP-1071)."""

from msgspec import field

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64, uint16


class StreamsGroupDescribeRequest(Message):
    api_key = 89
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    group_ids: list[str] = EMPTY
    include_authorized_operations: bool = False


class KeyValue(Struct):
    key: str = ""
    value: str = ""


class TopicInfo(Struct):
    name: str = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[KeyValue] = EMPTY


class Subtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = EMPTY
    repartition_sink_topics: list[str] = EMPTY
    state_changelog_topics: list[TopicInfo] = EMPTY
    repartition_source_topics: list[TopicInfo] = EMPTY


class Topology(Struct):
    epoch: int32 = 0
    subtopologies: list[Subtopology] | None = EMPTY


class Endpoint(Struct):
    host: str = ""
    port: uint16 = 0


class TaskOffset(Struct):
    subtopology_id: str = ""
    partition: int32 = 0
    offset: int64 = 0


class TaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[int32] = EMPTY


class Assignment(Struct):
    active_tasks: list[TaskIds] = EMPTY
    standby_tasks: list[TaskIds] = EMPTY
    warmup_tasks: list[TaskIds] = EMPTY


class Member(Struct):
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = EMPTY
    task_offsets: list[TaskOffset] = EMPTY
    task_end_offsets: list[TaskOffset] = EMPTY
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    is_classic: bool = False


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    topology: Topology | None = None
    members: list[Member] = EMPTY
    authorized_operations: int32 = -(1 << 31)


class StreamsGroupDescribeResponse(Message):
    api_key = 89
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = EMPTY
