"""DescribeTransactions: the state of transactional ids."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64


class DescribeTransactionsRequest(Message):
    api_key = 65
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    transactional_ids: list[str] = EMPTY


class TopicData(Struct):
    topic: str = ""
    partitions: list[int32] = EMPTY


class TransactionState(Struct):
    error_code: int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int32 = 0
    transaction_start_time_ms: int64 = 0
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    topics: list[TopicData] = EMPTY


class DescribeTransactionsResponse(Message):
    api_key = 65
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState] = EMPTY
