"""ElectLeaders: ask for the preferred, or for any, leader."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32


class TopicPartitions(Struct):
    topic: str = ""
    partitions: list[int32] = EMPTY


class ElectLeadersRequest(Message):
    api_key = 43
    versions = "0-2"
    flexible = "2+"
    served_by = ("broker", "controller")

    election_type: Annotated[int8, In("1+")] = 0
    topic_partitions: list[TopicPartitions] | None = EMPTY
    timeout_ms: int32 = 60000


class PartitionResult(Struct):
    partition_id: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class ReplicaElectionResult(Struct):
    topic: str = ""
    partition_result: list[PartitionResult] = EMPTY


class ElectLeadersResponse(Message):
    api_key = 43
    versions = "0-2"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    error_code: Annotated[int16, In("1+")] = 0
    replica_election_results: list[ReplicaElectionResult] = EMPTY
