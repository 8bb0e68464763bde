"""Records of `__cluster_metadata`: who may do what, and how much."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int8, int32, int64, uuid


class AccessControlEntryRecord(Message):
    versions = "0-0"
    flexible = "0+"

    id: uuid = ZERO_UUID
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 0
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class ClientQuotaRecord(Message):
    versions = "0-0"
    flexible = "0+"

    entity: list[EntityData] = EMPTY
    key: str = ""
    value: float = 0.0
    remove: bool = False


class DelegationTokenRecord(Message):
    versions = "0-0"
    flexible = "0+"

    owner: str = ""
    requester: str = ""
    renewers: list[str] = EMPTY
    issue_timestamp: int64 = 0
    max_timestamp: int64 = 0
    expiration_timestamp: int64 = 0
    token_id: str = ""


class RemoveAccessControlEntryRecord(Message):
    versions = "0-0"
    flexible = "0+"

    id: uuid = ZERO_UUID


class RemoveDelegationTokenRecord(Message):
    versions = "0-0"
    flexible = "0+"

    token_id: str = ""


class RemoveUserScramCredentialRecord(Message):
    versions = "0-0"
    flexible = "0+"

    name: str = ""
    mechanism: int8 = 0


class UserScramCredentialRecord(Message):
    versions = "0-0"
    flexible = "0+"

    name: str = ""
    mechanism: int8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int32 = 0
