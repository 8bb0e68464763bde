"""EndTxn: commit or abort a transaction."""

from typing import Annotated

from barnabas.wire.schema import In, Message, int16, int32, int64


class EndTxnRequest(Message):
    api_key = 26
    versions = "0-5"
    flexible = "3+"
    served_by = ("broker",)

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False


class EndTxnResponse(Message):
    api_key = 26
    versions = "0-5"
    flexible = "3+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: Annotated[int64, In("5+")] = -1
    producer_epoch: Annotated[int16, In("5+")] = -1
