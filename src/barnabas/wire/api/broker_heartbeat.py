"""BrokerHeartbeat: a broker is alive, and what it wants."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Tag, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Message):
    api_key = 63
    versions = "0-2"
    flexible = "0+"
    served_by = ("controller",)

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    current_metadata_offset: int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Annotated[list[uuid], In("1+"), Tag(0)] = EMPTY
    cordoned_log_dirs: Annotated[list[uuid] | None, In("2+"), Tag(1)] = None


class BrokerHeartbeatResponse(Message):
    api_key = 63
    versions = "0-2"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
