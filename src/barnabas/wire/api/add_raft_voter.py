"""AddRaftVoter: a node becomes a voter of the metadata log."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, uint16, uuid


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0


class AddRaftVoterRequest(Message):
    api_key = 80
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker", "controller")

    cluster_id: str | None = ""
    timeout_ms: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = EMPTY
    ack_when_committed: Annotated[bool, In("1+")] = True


class AddRaftVoterResponse(Message):
    api_key = 80
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
