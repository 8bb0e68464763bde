"""Records of `__transaction_state`."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int8, int16, int32, int64


class TransactionLogKey(Message):
    versions = "0-0"

    transactional_id: str = ""


class PartitionsSchema(Struct):
    topic: str = ""
    partition_ids: list[int32] = EMPTY


class TransactionLogValue(Message):
    """A transactional id and its transaction."""

    versions = "0-1"
    flexible = "1+"

    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = EMPTY
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    previous_producer_id: Annotated[int64, In("1+"), Tag(0)] = -1
    next_producer_id: Annotated[int64, In("1+"), Tag(1)] = -1
    client_transaction_version: Annotated[int16, In("1+"), Tag(2)] = 0
    next_producer_epoch: Annotated[int16, In("1+"), Tag(3)] = -1
