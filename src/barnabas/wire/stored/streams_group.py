"""Records of `__consumer_offsets`: streams groups (KIP-1071)."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, Message, Struct, Tag, int8, int16, int32, int64, uint16


class StreamsGroupCurrentMemberAssignmentKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[int32] = EMPTY
    assignment_epochs: Annotated[list[int32] | None, Tag(0)] = EMPTY


class StreamsGroupCurrentMemberAssignmentValue(Message):
    versions = "0-0"
    flexible = "0+"

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = EMPTY
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = EMPTY
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = EMPTY
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = EMPTY
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = EMPTY
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = EMPTY


class StreamsGroupMemberMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class Endpoint(Struct):
    host: str = ""
    port: uint16 = 0


class KeyValue(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupMemberMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = EMPTY


class StreamsGroupMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class LastAssignmentConfig(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    epoch: int32 = 0
    metadata_hash: int64 = 0
    validated_topology_epoch: Annotated[int32, Tag(0)] = -1
    last_assignment_configs: Annotated[list[LastAssignmentConfig] | None, Tag(1)] = EMPTY


class StreamsGroupTargetAssignmentMemberKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class StreamsGroupTargetAssignmentMemberTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[int32] = EMPTY


class StreamsGroupTargetAssignmentMemberValue(Message):
    versions = "0-0"
    flexible = "0+"

    active_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = EMPTY
    standby_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = EMPTY
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = EMPTY


class StreamsGroupTargetAssignmentMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class StreamsGroupTargetAssignmentMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    assignment_epoch: int32 = 0
    assignment_timestamp: Annotated[int64, Tag(0)] = 0


class StreamsGroupTopologyKey(Message):
    versions = "0-0"

    group_id: str = ""


class TopicConfig(Struct):
    key: str = ""
    value: str = ""


class TopicInfo(Struct):
    name: str = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[TopicConfig] = EMPTY


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


class StreamsGroupTopologyValue(Message):
    versions = "0-0"
    flexible = "0+"

    epoch: int32 = 0
    subtopologies: list[Subtopology] = EMPTY
