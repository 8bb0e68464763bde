"""ListTransactions: the transactional ids that a broker coordinates."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64


class ListTransactionsRequest(Message):
    api_key = 66
    versions = "0-2"
    flexible = "0+"
    served_by = ("broker",)

    state_filters: list[str] = EMPTY
    producer_id_filters: list[int64] = EMPTY
    duration_filter: Annotated[int64, In("1+")] = -1
    transactional_id_pattern: Annotated[str | None, In("2+")] = None


class TransactionState(Struct):
    transactional_id: str = ""
    producer_id: int64 = 0
    transaction_state: str = ""


class ListTransactionsResponse(Message):
    api_key = 66
    versions = "0-2"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = EMPTY
    transaction_states: list[TransactionState] = EMPTY
