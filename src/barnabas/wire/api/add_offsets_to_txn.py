"""AddOffsetsToTxn: a group whose offsets a transaction will commit."""

from barnabas.wire.schema import Message, int16, int32, int64


class AddOffsetsToTxnRequest(Message):
    api_key = 25
    versions = "0-4"
    flexible = "3+"
    served_by = ("broker",)

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message):
    api_key = 25
    versions = "0-4"
    flexible = "3+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
