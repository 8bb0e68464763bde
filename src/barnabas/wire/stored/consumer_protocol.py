"""What members of a classic group tell each other: subscription and assignment."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int32


class TopicPartition(Struct):
    topic: str = ""
    partitions: list[int32] = EMPTY


class ConsumerProtocolAssignment(Message):
    versions = "0-3"

    assigned_partitions: list[TopicPartition] = EMPTY
    user_data: bytes | None = None


class ConsumerProtocolSubscription(Message):
    versions = "0-3"

    topics: list[str] = EMPTY
    user_data: bytes | None = None
    owned_partitions: Annotated[list[TopicPartition], In("1+")] = EMPTY
    generation_id: Annotated[int32, In("2+")] = -1
    rack_id: Annotated[str | None, In("3+")] = None
