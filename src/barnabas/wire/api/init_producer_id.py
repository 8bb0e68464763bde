"""InitProducerId: an id and an epoch for an idempotent or transactional producer."""

from typing import Annotated

from barnabas.wire.schema import In, Message, int16, int32, int64


class InitProducerIdRequest(Message):
    api_key = 22
    versions = "0-6"
    flexible = "2+"
    served_by = ("broker",)
    latest_unstable = True

    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: Annotated[int64, In("3+")] = -1
    producer_epoch: Annotated[int16, In("3+")] = -1
    enable2_pc: Annotated[bool, In("6+")] = False
    keep_prepared_txn: Annotated[bool, In("6+")] = False


class InitProducerIdResponse(Message):
    api_key = 22
    versions = "0-6"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: Annotated[int64, In("6+")] = -1
    ongoing_txn_producer_epoch: Annotated[int16, In("6+")] = -1
