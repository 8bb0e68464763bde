"""DescribeUserScramCredentials: which users have which SCRAM mechanisms."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class UserName(Struct):
    name: str = ""


class DescribeUserScramCredentialsRequest(Message):
    api_key = 50
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker", "controller")

    users: list[UserName] | None = EMPTY


class CredentialInfo(Struct):
    mechanism: int8 = 0
    iterations: int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = EMPTY


class DescribeUserScramCredentialsResponse(Message):
    api_key = 50
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = EMPTY
