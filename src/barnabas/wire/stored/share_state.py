"""Records of `__share_group_state` (KIP-932)."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, Tag, int8, int16, int32, int64, uuid


class ShareSnapshotKey(Message):
    versions = "0-0"

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


class StateBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0
    delivery_count: int16 = 0


class ShareSnapshotValue(Message):
    versions = "0-0"
    flexible = "0+"

    snapshot_epoch: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    create_timestamp: int64 = 0
    write_timestamp: int64 = 0
    state_batches: list[StateBatch] = EMPTY
    delivery_complete_count: Annotated[int32, Tag(0)] = -1


class ShareUpdateKey(Message):
    versions = "0-0"

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


class ShareUpdateValue(Message):
    versions = "0-0"
    flexible = "0+"

    snapshot_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    state_batches: list[StateBatch] = EMPTY
    delivery_complete_count: Annotated[int32, Tag(0)] = -1
