"""Produce requests for one batch, read and answered without decoding or encoding a message.

A producer sends batch after batch to the same few partitions, and the bodies of two such requests differ only in the
batch: the bytes before it (acks, timeout, topic, partition) are identical. So a request is recognised by that prefix,
only the view of its batch is read, and the reply is a prepared one with the offsets filled in.

The layouts are those of a request without a transactional id, with one topic, one partition and no tagged fields:

    7 to 8    -1:i16 acks:i16 timeout:i32 1:i32 name:str 1:i32 index:i32 | length:i32 batch
    9 to 12   0:u8 acks:i16 timeout:i32 2:u8 name:compact str 2:u8 index:i32 | length:uvarint batch 0 0 0
    13        the same with topic_id:uuid for the name

What is left of the bar is the prefix. Versions below 7 are not read here: they may not carry every codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from barnabas.wire import header
from barnabas.wire.api.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.decoders import varint
from barnabas.wire.schema import DecodeError

LAST_VERSION = 13
SHORTEST = 64
"""No request with a batch is shorter, so a layout's fixed places can be looked at in any body of this size."""

Reply: TypeAlias = Callable[[int, int, int, int], bytes]
"""(correlation id, base offset, log append time, log start offset) -> the framed reply."""


class Layout(NamedTuple):
    prefix_end: Callable[[memoryview, int], int]
    """(buffer, where the body begins) -> where the batch's length stands, if the body has this layout."""
    has_one_partition: Callable[[memoryview, int, int], bool]
    """(buffer, where the body begins, where the prefix ends) -> whether it has this layout so far."""
    batch: Callable[[memoryview, int, int], memoryview | None]
    """(buffer, where the prefix ends, where the body ends) -> the batch; None where the rest has another layout."""


def layout_of(version: int) -> Layout | None:
    if version > LAST_VERSION:
        return None
    return _TOPIC_ID if version == 13 else _COMPACT if version >= 9 else _CLASSIC if version >= 7 else None


_count = struct.Struct(">i").unpack_from
_name_length = struct.Struct(">h").unpack_from


def _classic_prefix_end(buffer: memoryview, body: int) -> int:
    return body + 22 + int(_name_length(buffer, body + 12)[0])


def _classic_has_one_partition(buffer: memoryview, body: int, prefix_end: int) -> bool:
    if prefix_end < body + 22 or _name_length(buffer, body)[0] != -1:
        return False
    return bool(_count(buffer, body + 8)[0] == _count(buffer, prefix_end - 8)[0] == 1)


def _classic_batch(buffer: memoryview, at: int, end: int) -> memoryview | None:
    if end - at < 4 or _count(buffer, at)[0] != end - at - 4:
        return None
    return buffer[at + 4 : end]


def _compact_prefix_end(buffer: memoryview, body: int) -> int:
    """A compact length is one more than the name's, and so counts its own byte too."""
    return body + 13 + buffer[body + 8]


def _compact_has_one_partition(buffer: memoryview, body: int, prefix_end: int) -> bool:
    """The length of a name of 127 bytes or more has two bytes: such topics are left to the codec."""
    return buffer[body + 8] < 128 and _topic_id_has_one_partition(buffer, body, prefix_end)


def _topic_id_prefix_end(buffer: memoryview, body: int) -> int:
    return body + 29


def _topic_id_has_one_partition(buffer: memoryview, body: int, prefix_end: int) -> bool:
    return buffer[body] == 0 and buffer[body + 7] == 2 and buffer[prefix_end - 5] == 2


def _compact_batch(buffer: memoryview, at: int, end: int) -> memoryview | None:
    try:
        length = buffer[at]
        at += 1
        if length > 127:
            length, at = varint(buffer, at, length)
    except (IndexError, DecodeError):
        return None
    last = at + length - 1
    if not length or last + 3 != end or buffer[last] or buffer[last + 1] or buffer[last + 2]:
        return None
    return buffer[at:last]


_CLASSIC = Layout(_classic_prefix_end, _classic_has_one_partition, _classic_batch)
_COMPACT = Layout(_compact_prefix_end, _compact_has_one_partition, _compact_batch)
_TOPIC_ID = Layout(_topic_id_prefix_end, _topic_id_has_one_partition, _compact_batch)


def reply_to(topic: TopicProduceData, version: int) -> Reply:
    """Makes replies without an error to requests for the topic's one partition.

    Where the numbers go is where the reply with zeros differs from the one with minus ones.
    """
    zeros, ones = (_encoded_reply(topic, version, number) for number in (0, -1))
    differing = [at for at, byte in enumerate(zeros) if byte != ones[at]]
    size, before, behind = zeros[:4], zeros[8 : differing[0]], zeros[differing[-1] + 1 :]
    pack = struct.Struct(f">4si{len(before)}sqqq{len(behind)}s").pack

    def reply(correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        return pack(size, correlation_id, before, base_offset, log_append_time_ms, log_start_offset, behind)

    return reply


def _encoded_reply(topic: TopicProduceData, version: int, number: int) -> bytes:
    answer = PartitionProduceResponse(
        topic.partition_data[0].index, base_offset=number, log_append_time_ms=number, log_start_offset=number
    )
    response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])
    return b"".join(header.frame_response(response, version, 0))  # type: ignore[arg-type]
