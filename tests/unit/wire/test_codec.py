"""The codec's rules, one by one."""

import tracemalloc
from typing import Annotated

import pytest

from barnabas.wire import codec
from barnabas.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.schema import (
    EMPTY,
    DecodeError,
    EncodeError,
    In,
    Message,
    Null,
    Struct,
    Tag,
    int8,
    int16,
    int32,
    uint16,
    uint32,
    uuid,
)


class Item(Struct):
    name: str = ""
    count: Annotated[int16, In("1+")] = 7


class Sample(Message):
    """Every form there is, classic in versions 0 and 1, flexible in 2."""

    versions = "0-2"
    flexible = "2+"

    flag: bool = False
    small: int8 = 0
    port: uint16 = 0
    mask: uint32 = 0
    ratio: float = 0.0
    text: Annotated[str | None, Null("1+")] = ""
    blob: bytes = b""
    ids: list[uuid] = EMPTY
    numbers: list[int32] | None = EMPTY
    items: list[Item] = EMPTY
    inner: Item | None = None
    label: Annotated[str, In("2+"), Tag(0)] = "none"
    more: Annotated[list[int32], In("2+"), Tag(3)] = EMPTY


def again(message: Sample, version: int) -> Sample:
    raw = codec.encode_bytes(message, version)
    decoded, end = codec.decode(Sample, version, raw)
    assert end == len(raw)
    return decoded


FULL = Sample(
    flag=True,
    small=-128,
    port=65535,
    mask=0xFFFFFFFF,
    ratio=-0.5,
    text="größer",
    blob=b"\x00\xff",
    ids=[bytes(range(16)), bytes(16)],
    numbers=[1, -1],
    items=[Item("a", 1), Item("b", 2)],
    inner=Item("c", 3),
    label="",
    more=[5],
)


def test_a_flexible_version_keeps_every_field() -> None:
    assert again(FULL, 2) == FULL


def test_a_version_drops_the_fields_that_it_has_not() -> None:
    decoded = again(FULL, 0)
    assert decoded.label == "none"
    assert decoded.more == []
    assert [item.count for item in decoded.items] == [7, 7]
    assert again(FULL, 1).items == FULL.items


def test_the_bytes_of_an_empty_message() -> None:
    fixed = bytes(1 + 1 + 2 + 4 + 8)
    assert codec.encode_bytes(Sample(), 1) == fixed + bytes(2 + 4 + 4 + 4 + 4) + b"\xff"
    assert codec.encode_bytes(Sample(), 2) == fixed + b"\x01\x01\x01\x01\x01" + b"\xff" + b"\x00"


@pytest.mark.parametrize("version", [1, 2])
def test_null_where_it_is_allowed(version: int) -> None:
    message = Sample(text=None, numbers=None)
    assert again(message, version) == message


def test_null_is_a_matter_of_the_version() -> None:
    with pytest.raises(EncodeError):
        codec.encode(Sample(text=None), 0)
    raw = bytearray(codec.encode_bytes(Sample(text="x"), 0))
    raw[16:19] = b"\xff\xff"
    with pytest.raises(DecodeError, match="text"):
        codec.decode(Sample, 0, raw)
    message, _ = codec.decode(Sample, 1, raw)
    assert message.text is None


def test_any_byte_but_zero_is_true() -> None:
    raw = bytearray(codec.encode_bytes(Sample(), 2))
    raw[0] = 0x40
    assert codec.decode(Sample, 2, raw)[0].flag is True


@pytest.mark.parametrize(
    "message",
    [
        Sample(small=128),
        Sample(port=-1),
        Sample(port=65536),
        Sample(mask=1 << 32),
        Sample(small=None),  # type: ignore[arg-type]
        Sample(flag=None),  # type: ignore[arg-type]
        Sample(blob=None),  # type: ignore[arg-type]
        Sample(items=None),  # type: ignore[arg-type]
        Sample(ids=[b"short"]),
        Sample(numbers=[1 << 31]),
        Sample(items=[Item(None)]),  # type: ignore[arg-type]
        Sample(text="x" * 0x8000),
        Sample(text="\ud800"),
        Sample(text=1),  # type: ignore[arg-type]
        Sample(blob="text"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_cannot_be_written_is_an_encode_error(message: Sample, version: int) -> None:
    with pytest.raises(EncodeError):
        codec.encode_bytes(message, version)


def test_versions_that_do_not_exist() -> None:
    with pytest.raises(DecodeError):
        codec.decode(Sample, 3, b"")
    with pytest.raises(EncodeError):
        codec.encode(Sample(), 3)


@pytest.mark.parametrize("count", [126, 127, 128, 200, 20000])
def test_long_arrays(count: int) -> None:
    message = Sample(numbers=list(range(count)), items=[Item("i")] * count, more=[1] * count, text="t" * count)
    assert again(message, 2) == message


# -- tagged fields


def tagged(tags: bytes) -> bytes:
    return codec.encode_bytes(Sample(), 2)[:-1] + tags


def test_tagged_fields_at_their_default_are_not_written() -> None:
    assert codec.encode_bytes(Sample(label="none", more=[]), 2) == codec.encode_bytes(Sample(), 2)
    assert codec.encode_bytes(Sample(label="x"), 2) == tagged(b"\x01\x00\x02\x02x")


def test_unknown_tagged_fields_are_skipped() -> None:
    raw = tagged(b"\x04\x00\x02\x02x\x01\x03abc\x03\x05\x02\x00\x00\x00\x09\x90\x01\x00")
    message, end = codec.decode(Sample, 2, raw)
    assert end == len(raw)
    assert (message.label, message.more) == ("x", [9])


def test_unknown_tagged_fields_of_a_nested_struct_are_skipped() -> None:
    raw = codec.encode_bytes(Sample(items=[Item("a", 1)]), 2)
    changed = raw.replace(b"\x02a\x00\x01\x00", b"\x02a\x00\x01\x01\x05\x02zz")
    assert codec.decode(Sample, 2, changed) == (Sample(items=[Item("a", 1)]), len(changed))


@pytest.mark.parametrize(
    "tags",
    [
        b"\x02\x00\x02\x02x\x00\x02\x02y",  # twice the same
        b"\x02\x03\x01\x01\x00\x02\x02y",  # not ascending
        b"\x02\x07\x00\x07\x00",  # twice the same unknown one
        b"\x01\x00\x03\x02x\x00",  # longer than its value
        b"\x01\x00\x01\x02x",  # shorter than its value
        b"\x01\x07\x09abc",  # longer than what is left
        b"\xff\xff\xff\xff\x0f",  # four thousand million tags
        b"\x05\x07\x00",  # fewer than promised
        b"\x01\xff\xff\xff\xff\xff\x01\x00",  # a tag of six bytes
        b"\x01",
    ],
)
def test_broken_tag_buffers_are_refused(tags: bytes) -> None:
    with pytest.raises(DecodeError):
        codec.decode(Sample, 2, tagged(tags))


# -- hostile input


@pytest.mark.parametrize("version", [1, 2])
def test_every_truncation_is_refused(version: int) -> None:
    raw = codec.encode_bytes(FULL, version)
    for end in range(len(raw)):
        with pytest.raises(DecodeError):
            codec.decode(Sample, version, raw[:end])
        with pytest.raises(DecodeError):
            codec.decode(Sample, version, raw + raw, 0, end)


def test_texts_that_are_not_utf8_are_refused() -> None:
    raw = codec.encode_bytes(Sample(text="xy"), 2).replace(b"xy", b"\xc3\x28")
    with pytest.raises(DecodeError):
        codec.decode(Sample, 2, raw)


@pytest.mark.parametrize(
    "count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x08"]
)
def test_counts_are_checked_before_memory_is_taken(count: bytes) -> None:
    raw = count + bytes(100)
    tracemalloc.start()
    with pytest.raises(DecodeError):
        codec.decode(MetadataRequest, 9, raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_classic_count_is_checked_too() -> None:
    for count in (b"\x7f\xff\xff\xff", b"\x00\x00\x01\x00"):
        with pytest.raises(DecodeError):
            codec.decode(MetadataRequest, 1, count + bytes(100))


def test_a_count_may_promise_as_many_of_the_smallest_elements_as_fit() -> None:
    topics = [MetadataRequestTopic(name="") for _ in range(50)]
    raw = codec.encode_bytes(MetadataRequest(topics=topics), 1)
    assert len(raw) == 4 + 2 * 50
    assert codec.decode(MetadataRequest, 1, raw)[0].topics == topics


def test_a_varint_need_not_be_short() -> None:
    message, end = codec.decode(MetadataRequest, 9, b"\x80\x00" + b"\x00\x00\x00" + b"\x00")
    assert message.topics is None
    assert end == 6


# -- records


class FileRange:
    size = 100_000


def fetched(*records: object) -> FetchResponse:
    partitions = [PartitionData(partition_index=at, records=item) for at, item in enumerate(records)]  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_decoded_records_are_views_of_the_buffer() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, b"abcd")])])
    buffer = bytearray(codec.encode_bytes(request, 9))
    decoded, _ = codec.decode(ProduceRequest, 9, buffer)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"abcd")] = ord("X")
    assert bytes(records) == b"Xbcd"


def test_large_records_and_sources_are_passed_on_as_they_are() -> None:
    large, source = memoryview(bytes(50_000)), FileRange()
    chunks = codec.encode(fetched(b"small", large, source, None, b"end"), 12)
    assert len(chunks) == 5
    assert chunks[1] is large
    assert chunks[3] is source
    assert codec.size(chunks) == sum(len(chunk) for chunk in chunks if isinstance(chunk, (bytes, memoryview))) + 100_000
    copy = codec.encode_bytes(fetched(b"small", bytes(large), bytes(100_000), None, b"end"), 12)
    assert b"".join(bytes(100_000) if chunk is source else chunk for chunk in chunks) == copy  # type: ignore[misc]


def test_a_source_cannot_be_made_one_piece() -> None:
    with pytest.raises(EncodeError):
        codec.encode_bytes(fetched(FileRange()), 12)


@pytest.mark.parametrize("version", [11, 12])
def test_null_records(version: int) -> None:
    raw = codec.encode_bytes(fetched(None, b""), version)
    partitions = codec.decode(FetchResponse, version, raw)[0].responses[0].partitions
    assert partitions[0].records is None
    assert partitions[1].records == b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: type) -> None:
    assert codec.decode(Sample, 2, kind(codec.encode_bytes(FULL, 2)))[0] == FULL
