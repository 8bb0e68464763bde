"""AddPartitionsToTxn: partitions that a transaction will write to."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64


class AddPartitionsToTxnTopic(Struct):
    name: str = ""
    partitions: list[int32] = EMPTY


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = EMPTY


class AddPartitionsToTxnRequest(Message):
    api_key = 24
    versions = "0-5"
    flexible = "3+"
    served_by = ("broker",)

    v3_and_below_transactional_id: Annotated[str, In("0-3")] = ""
    transactions: Annotated[list[AddPartitionsToTxnTransaction], In("4+")] = EMPTY
    v3_and_below_producer_id: Annotated[int64, In("0-3")] = 0
    v3_and_below_producer_epoch: Annotated[int16, In("0-3")] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], In("0-3")] = EMPTY


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int32 = 0
    partition_error_code: int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = EMPTY


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = EMPTY


class AddPartitionsToTxnResponse(Message):
    api_key = 24
    versions = "0-5"
    flexible = "3+"

    throttle_time_ms: int32 = 0
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], In("0-3")] = EMPTY
    error_code: Annotated[int16, In("4+")] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], In("4+")] = EMPTY
