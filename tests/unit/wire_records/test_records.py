"""Encoding and decoding of records, with Hypothesis and by hand."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import batch, records
from barnabas.wire.batch import CorruptBatch, InvalidRecord, UnsupportedCodec
from barnabas.wire.compression import BombError, Codec, DecompressionError
from barnabas.wire.records import ControlType, Record

nullable = st.none() | st.binary(max_size=40)
timestamps = st.integers(-1, 2**62)
record = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=timestamps,
    key=nullable,
    value=nullable,
    headers=st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3).map(tuple),
)


@given(st.lists(record, max_size=20), st.integers(0, 2**50), st.sampled_from(Codec))
def test_what_is_encoded_is_decoded(given_records: list[Record], base_offset: int, codec: Codec) -> None:
    whole = records.encode_batch(given_records, base_offset=base_offset, codec=codec)
    expected = [each._replace(offset=base_offset + index) for index, each in enumerate(given_records)]
    assert records.decode_batch(b"?" + whole, 1) == expected
    header = batch.read_header(whole)
    assert batch.check_crc(whole, 0, len(whole))
    assert header.record_count == len(given_records)
    assert header.max_timestamp == max((each.timestamp for each in given_records), default=-1)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(number: int) -> None:
    out = bytearray()
    records.append_varint(out, number)
    assert records.read_varint(out, 0) == (number, len(out))


@pytest.mark.parametrize("data", [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80" * 10])
def test_varints_that_are_too_long(data: bytes) -> None:
    with pytest.raises(ValueError, match="too long"):
        records.read_varint(data, 0)


def test_offsets_may_have_gaps_and_the_last_may_be_gone() -> None:
    kept = [Record(12, 5, b"a", b"1"), Record(15, 6, b"b", b"2")]
    whole = records.encode_batch(kept, base_offset=10, last_offset=19)
    assert records.decode_batch(whole) == kept
    header = batch.read_header(whole)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 19, 2)
    with pytest.raises(ValueError, match="not above"):
        records.encode_batch(list(reversed(kept)), base_offset=10)


def test_an_empty_batch_keeps_its_producer() -> None:
    whole = records.encode_batch([], base_offset=4, last_offset=8, producer_id=3, producer_epoch=1, base_sequence=2)
    header = batch.read_header(whole)
    assert (header.last_offset, header.record_count, header.last_sequence) == (8, 0, 6)
    assert records.decode_batch(whole) == []


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    whole = records.encode_batch([Record(timestamp=100, key=b"k")], delete_horizon=900)
    header = batch.read_header(whole)
    assert (header.has_delete_horizon, header.base_timestamp, header.max_timestamp) == (True, 900, 100)
    assert records.decode_batch(whole)[0].timestamp == 100


def test_log_append_time() -> None:
    whole = records.encode_batch([Record(timestamp=1), Record(timestamp=2)], log_append_time=77)
    assert [each.timestamp for each in records.decode_batch(whole)] == [77, 77]
    assert batch.read_header(whole).is_log_append_time


def test_header_keys_that_are_no_utf8_survive() -> None:
    whole = records.encode_batch([Record(timestamp=0, headers=(("\udcff", None),))])
    assert records.encode_batch(records.decode_batch(whole)) == whole
    assert b"\xff" in whole


@given(st.lists(record, min_size=1, max_size=5), st.data())
def test_mutated_records_raise_typed_errors_only(given_records: list[Record], data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(Codec))
    whole = bytearray(records.encode_batch(given_records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch, InvalidRecord, UnsupportedCodec, DecompressionError, batch.UnsupportedMagic):
        records.decode_batch(whole, max_bytes=1 << 20)


def test_the_bound_is_handed_on() -> None:
    whole = records.encode_batch([Record(timestamp=0, value=bytes(100_000))], codec=Codec.ZSTD)
    assert len(whole) < 1000
    with pytest.raises(BombError):
        records.decode_batch(whole, max_bytes=10_000)


@pytest.mark.parametrize("control_type", ControlType)
def test_control_batches(control_type: ControlType) -> None:
    whole = records.encode_control(control_type, b"\x00\x00value", timestamp=9, base_offset=3, leader_epoch=2)
    header = batch.read_header(whole)
    assert (header.is_control, header.is_transactional, header.leader_epoch) == (True, False, 2)
    (only,) = records.decode_batch(whole)
    assert only == Record(3, 9, b"\x00\x00" + control_type.to_bytes(2, "big"), b"\x00\x00value")
    assert records.read_control_type(only) is control_type


def test_control_types_of_later_builds_are_none() -> None:
    assert records.read_control_type(Record(key=b"\x00\x00\x00\x63")) is None
    assert records.read_control_type(Record(key=b"\x00\x01\x00\x01more")) is ControlType.COMMIT
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(InvalidRecord):
            records.read_control_type(Record(key=key))
    with pytest.raises(InvalidRecord):
        records.read_coordinator_epoch(Record(value=b"\x00"))
