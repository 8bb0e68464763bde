"""The layouts of the Produce fast path, compared with the codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import codec, header, known_produce
from barnabas.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.known_produce import SHORTEST, layout_of
from barnabas.wire.schema import DecodeError

VERSIONS = range(7, 14)
NAMES = st.text("abcXYZ09._-", min_size=1, max_size=249)
BATCHES = st.one_of(st.binary(min_size=61, max_size=300), st.integers(16_300, 16_400).map(bytes))


def topics(names: st.SearchStrategy[str], partitions: int = 1) -> st.SearchStrategy[TopicProduceData]:
    listed = st.lists(
        st.builds(PartitionProduceData, st.integers(0, 2**31 - 1), BATCHES), min_size=partitions, max_size=partitions
    )
    return st.builds(TopicProduceData, names, st.binary(min_size=16, max_size=16), listed)


def requests(
    *, topic_count: int = 1, partitions: int = 1, transactional_id: str | None = None
) -> st.SearchStrategy[ProduceRequest]:
    listed = st.lists(topics(NAMES, partitions), min_size=topic_count, max_size=topic_count)
    return st.builds(
        ProduceRequest, st.just(transactional_id), st.sampled_from([0, 1, -1]), st.integers(0, 2**31 - 1), listed
    )


def read(version: int, body: bytes) -> tuple[bytes, memoryview] | None:
    """(prefix, batch) where the bytes have the layout, as a broker reads them."""
    layout = layout_of(version)
    assert layout is not None
    view = memoryview(b"before" + body)
    if len(body) < SHORTEST:
        return None
    prefix_end = layout.prefix_end(view, 6)
    if not 6 < prefix_end < len(view) or not layout.has_one_partition(view, 6, prefix_end):
        return None
    batch = layout.batch(view, prefix_end, len(view))
    return None if batch is None else (bytes(view[6:prefix_end]), batch)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_one_batch_is_found(version: int, data: st.DataObject) -> None:
    request = data.draw(requests())
    found = read(version, codec.encode_bytes(request, version))
    topic = request.topic_data[0]
    if 9 <= version <= 12 and len(topic.name) >= 127:
        assert found is None
        return
    assert found is not None
    assert found[1] == topic.partition_data[0].records


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_other_requests_are_left_to_the_codec(version: int, data: st.DataObject) -> None:
    kinds = [{"topic_count": 2}, {"partitions": 2}, {"transactional_id": "t"}, {"topic_count": 0}, {"partitions": 0}]
    request = data.draw(st.sampled_from(kinds).flatmap(lambda kind: requests(**kind)))
    assert read(version, codec.encode_bytes(request, version)) is None


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_what_the_layout_reads_the_codec_reads_too(version: int, data: st.DataObject) -> None:
    """Whatever the bytes: tagged fields, lengths that lie, varints that are too long."""
    body = bytearray(codec.encode_bytes(data.draw(requests()), version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from([*range(min(40, len(body))), *range(len(body) - 6, len(body))]))
        body[at] = data.draw(st.one_of(st.sampled_from([0, 1, 2, 127, 128, 255]), st.integers(0, 255)))
    body += data.draw(st.sampled_from([b"", b"", b"\x00", b"\x00\x00\x00"]))
    found = read(version, bytes(body))
    if found is None:
        return
    try:
        request, end = codec.decode(ProduceRequest, version, memoryview(bytes(body)))
    except DecodeError:
        assert not _is_text(found[0])  # a name is read when its prefix is learnt, which fails then
        return
    assert end == len(body)
    assert request.transactional_id is None
    assert [len(topic.partition_data) for topic in request.topic_data] == [1]
    assert request.topic_data[0].partition_data[0].records == found[1]


def _is_text(prefix: bytes) -> bool:
    return all(byte < 128 for byte in prefix)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.binary(min_size=SHORTEST, max_size=200))
def test_no_bytes_make_it_fail(version: int, data: bytes) -> None:
    read(version, data)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    topic=topics(NAMES),
    numbers=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
)
def test_the_reply_is_the_codecs(
    version: int, topic: TopicProduceData, numbers: tuple[int, int, int], correlation_id: int
) -> None:
    base_offset, append_time_ms, start_offset = numbers
    answer = PartitionProduceResponse(topic.partition_data[0].index, 0, base_offset, append_time_ms, start_offset)
    response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])
    expected = b"".join(bytes(chunk) for chunk in header.frame_response(response, version, correlation_id))
    assert known_produce.reply_to(topic, version)(correlation_id, *numbers) == expected


@pytest.mark.parametrize("version", [3, 4, 14])
def test_versions_without_a_layout(version: int) -> None:
    assert layout_of(version) is None
