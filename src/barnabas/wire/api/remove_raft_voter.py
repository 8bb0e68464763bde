"""RemoveRaftVoter: a voter of the metadata log ceases to be one."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import Message, int16, int32, uuid


class RemoveRaftVoterRequest(Message):
    api_key = 81
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker", "controller")

    cluster_id: str | None = ""
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID


class RemoveRaftVoterResponse(Message):
    api_key = 81
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
