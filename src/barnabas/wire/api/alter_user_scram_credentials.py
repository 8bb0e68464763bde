"""AlterUserScramCredentials: set and remove SCRAM credentials."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class ScramCredentialDeletion(Struct):
    name: str = ""
    mechanism: int8 = 0


class ScramCredentialUpsertion(Struct):
    name: str = ""
    mechanism: int8 = 0
    iterations: int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsRequest(Message):
    api_key = 51
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker", "controller")

    deletions: list[ScramCredentialDeletion] = EMPTY
    upsertions: list[ScramCredentialUpsertion] = EMPTY


class AlterUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(Message):
    api_key = 51
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = EMPTY
