"""DescribeDelegationToken: the tokens of owners."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenRequest(Message):
    api_key = 41
    versions = "1-3"
    flexible = "2+"
    served_by = ("broker", "controller")

    owners: list[DescribeDelegationTokenOwner] | None = EMPTY


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = ""
    principal_name: str = ""


class DescribedDelegationToken(Struct):
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, In("3+")] = ""
    token_requester_principal_name: Annotated[str, In("3+")] = ""
    issue_timestamp: int64 = 0
    expiry_timestamp: int64 = 0
    max_timestamp: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = EMPTY


class DescribeDelegationTokenResponse(Message):
    api_key = 41
    versions = "1-3"
    flexible = "2+"

    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = EMPTY
    throttle_time_ms: int32 = 0
