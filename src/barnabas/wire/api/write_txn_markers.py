"""WriteTxnMarkers: the coordinator tells leaders how a transaction ended."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32, int64


class WritableTxnMarkerTopic(Struct):
    name: str = ""
    partition_indexes: list[int32] = EMPTY


class WritableTxnMarker(Struct):
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = EMPTY
    coordinator_epoch: int32 = 0
    transaction_version: Annotated[int8, In("2+")] = 0


class WriteTxnMarkersRequest(Message):
    api_key = 27
    versions = "1-2"
    flexible = "1+"
    served_by = ("broker",)

    markers: list[WritableTxnMarker] = EMPTY


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = EMPTY


class WritableTxnMarkerResult(Struct):
    producer_id: int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = EMPTY


class WriteTxnMarkersResponse(Message):
    api_key = 27
    versions = "1-2"
    flexible = "1+"

    markers: list[WritableTxnMarkerResult] = EMPTY
