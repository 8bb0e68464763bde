"""FindCoordinator: the broker that looks after a group, a transactional id or a share partition."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32


class FindCoordinatorRequest(Message):
    api_key = 10
    versions = "0-6"
    flexible = "3+"
    served_by = ("broker",)

    key: Annotated[str, In("0-3")] = ""
    key_type: Annotated[int8, In("1+")] = 0
    coordinator_keys: Annotated[list[str], In("4+")] = EMPTY


class Coordinator(Struct):
    key: str = ""
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class FindCoordinatorResponse(Message):
    api_key = 10
    versions = "0-6"
    flexible = "3+"

    throttle_time_ms: Annotated[int32, In("1+")] = 0
    error_code: Annotated[int16, In("0-3")] = 0
    coordinators: Annotated[list[Coordinator], In("4+")] = EMPTY
    error_message: Annotated[str | None, In("1-3")] = ""
    node_id: Annotated[int32, In("0-3")] = 0
    host: Annotated[str, In("0-3")] = ""
    port: Annotated[int32, In("0-3")] = 0
