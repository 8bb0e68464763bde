"""CreateDelegationToken: a token that stands for a principal."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64


class CreatableRenewers(Struct):
    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenRequest(Message):
    api_key = 38
    versions = "1-3"
    flexible = "2+"
    served_by = ("broker", "controller")

    owner_principal_type: Annotated[str | None, In("3+")] = ""
    owner_principal_name: Annotated[str | None, In("3+")] = ""
    renewers: list[CreatableRenewers] = EMPTY
    max_lifetime_ms: int64 = 0


class CreateDelegationTokenResponse(Message):
    api_key = 38
    versions = "1-3"
    flexible = "2+"

    error_code: int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, In("3+")] = ""
    token_requester_principal_name: Annotated[str, In("3+")] = ""
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int32 = 0
