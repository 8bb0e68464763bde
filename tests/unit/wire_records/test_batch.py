"""Batch headers: reading, patching in place, and what is refused."""

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.wire import batch, records
from barnabas.wire.batch import CorruptBatch, InvalidRecord, UnsupportedCodec, UnsupportedMagic
from barnabas.wire.compression import Codec

RECORDS = [records.Record(timestamp=1000 + i, key=b"k", value=b"v" * i) for i in range(3)]


def one(**fields: object) -> bytearray:
    return bytearray(records.encode_batch(RECORDS, **fields))  # type: ignore[arg-type]


def test_errors_carry_their_codes() -> None:
    assert CorruptBatch.code is ErrorCode.CORRUPT_MESSAGE
    assert InvalidRecord.code is ErrorCode.INVALID_RECORD
    assert UnsupportedMagic.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert UnsupportedCodec.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_header_is_read_without_its_records() -> None:
    whole = one(base_offset=7, producer_id=5, producer_epoch=1, base_sequence=9)
    header = batch.read_header(b"xx" + whole[: batch.HEADER_SIZE], 2)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 9, 10)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.size, header.record_count, header.last_sequence) == (len(whole), 3, 11)
    assert header.codec is Codec.NONE


@pytest.mark.parametrize(
    ("flag", "name"),
    [(0x08, "is_log_append_time"), (0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")],
)
def test_flags(flag: int, name: str) -> None:
    header = batch.read_header(one())
    assert not getattr(header, name)
    assert getattr(header._replace(attributes=flag), name)


@pytest.mark.parametrize(
    ("base", "count", "last"), [(2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 2, 5, 2), (-1, 3, -1)]
)
def test_sequences_wrap_to_zero(base: int, count: int, last: int) -> None:
    header = batch.read_header(one())._replace(base_sequence=base, last_offset_delta=count - 1)
    assert header.last_sequence == last


@pytest.mark.parametrize("size", [0, 1, 11, 16, 17, 60])
def test_short_headers_are_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        batch.read_header(one()[:size])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_impossible_lengths_are_corrupt(length: int) -> None:
    whole = one()
    whole[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        batch.read_header(whole)


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_told_apart(magic: int) -> None:
    message = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(9)
    with pytest.raises(UnsupportedMagic) as caught:
        batch.read_header(message)
    assert caught.value.magic == magic


def test_unknown_magic_is_corrupt() -> None:
    whole = one()
    whole[16] = 3
    with pytest.raises(CorruptBatch):
        batch.read_header(whole)


def test_checksum_sees_every_bit_after_it() -> None:
    whole = one()
    for position in range(17, len(whole)):
        whole[position] ^= 0x10
        assert not batch.check_crc(whole, 0, len(whole))
        whole[position] ^= 0x10
    assert batch.check_crc(whole, 0, len(whole))
    assert not batch.check_crc(whole, 0, len(whole) + 1)
    assert not batch.check_crc(whole, -1, len(whole))
    assert not batch.check_crc(whole, 0, 60)


def test_patching_leaves_the_checksum_whole() -> None:
    whole = b"--" + one()
    view = memoryview(bytearray(whole))
    batch.patch_offset_and_epoch(view[2:], 1 << 40, 17)
    header = batch.read_header(view, 2)
    assert (header.base_offset, header.leader_epoch, header.size) == (1 << 40, 17, len(whole) - 2)
    assert batch.check_crc(view, 2, header.size)
    batch.patch_offset_and_epoch(view[2:], 3, 4)
    assert batch.read_header(view, 2) == header._replace(base_offset=3, leader_epoch=4)
    assert [record.offset for record in records.decode_batch(view, 2)] == [3, 4, 5]


def test_restamping_to_log_append_time() -> None:
    whole = one()
    attributes = batch.read_header(whole).attributes | batch.LOG_APPEND_TIME
    crc = batch.restamp(whole, 0, attributes=attributes, max_timestamp=5000)
    header = batch.read_header(whole)
    assert (header.crc, header.max_timestamp, header.base_timestamp) == (crc, 5000, 1000)
    assert batch.check_crc(whole, 0, len(whole))
    assert [record.timestamp for record in records.decode_batch(whole)] == [5000] * 3
    with pytest.raises(CorruptBatch):
        batch.restamp(whole[:-1], 0, max_timestamp=1)


def test_iteration_ends_at_what_is_cut_short() -> None:
    whole = one()
    twice = whole + whole
    assert [position for position, _ in batch.iterate(twice)] == [0, len(whole)]
    assert [position for position, _ in batch.iterate(twice, 0, len(twice) - 1)] == [0]
    assert [position for position, _ in batch.iterate(twice, len(whole))] == [len(whole)]
    assert list(batch.iterate(b"")) == []
    with pytest.raises(CorruptBatch):
        list(batch.iterate(whole + bytes(100)))


def test_a_good_header_passes() -> None:
    batch.check_header(batch.read_header(one(producer_id=1, producer_epoch=0, base_sequence=0)))


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 1},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": 4},
        {"record_count": -1},
        {"last_offset_delta": -5},
        {"attributes": batch.CONTROL},
        {"producer_id": 1, "base_sequence": -1},
        {"record_count": 10**6, "last_offset_delta": 10**6 - 1},
    ],
)
def test_headers_that_no_client_may_send(changes: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord):
        batch.check_header(batch.read_header(one())._replace(**changes))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        batch.check_header(batch.read_header(one())._replace(attributes=codec))
