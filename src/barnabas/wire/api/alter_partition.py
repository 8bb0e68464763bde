"""AlterPartition: a leader asks the controller for another in-sync set."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int32 = 0
    broker_epoch: int64 = -1


class AlterPartitionRequestPartitionData(Struct):
    partition_index: int32 = 0
    leader_epoch: int32 = 0
    new_isr: Annotated[list[int32], In("2")] = EMPTY
    new_isr_with_epochs: Annotated[list[BrokerState], In("3+")] = EMPTY
    leader_recovery_state: int8 = 0
    partition_epoch: int32 = 0


class AlterPartitionRequestTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterPartitionRequestPartitionData] = EMPTY


class AlterPartitionRequest(Message):
    api_key = 56
    versions = "2-3"
    flexible = "2+"
    served_by = ("controller",)

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    topics: list[AlterPartitionRequestTopicData] = EMPTY


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    isr: list[int32] = EMPTY
    leader_recovery_state: int8 = 0
    partition_epoch: int32 = 0


class AlterPartitionResponseTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterPartitionResponsePartitionData] = EMPTY


class AlterPartitionResponse(Message):
    api_key = 56
    versions = "2-3"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[AlterPartitionResponseTopicData] = EMPTY
