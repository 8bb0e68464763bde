"""Appending as the leader: offsets, what is refused and with which code, and what is rewritten."""

from __future__ import annotations

import struct

import pytest

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.storage.producer_state import Origin
from barnabas.storage.validation import Validation
from barnabas.wire.batch import CONTROL, LOG_APPEND_TIME, restamp
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, decode_batch, encode_batch, encode_end_marker
from tests.unit.storage.kit import NOW, append, batch, new_log, offsets, read_all, small, span


def refused(log, data: bytes, **arguments) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(ApiError) as caught:
        append(log, data, **arguments)
    assert log.log_end_offset == end
    return caught.value.code


def patched(data: bytes, position: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    restamp(changed, 0)
    return bytes(changed)


def test_offsets_follow_each_other_and_the_answer_names_them():
    log = new_log()
    assert span(append(log, batch(3))) == (0, 2)
    appended = append(log, batch(2))
    assert (appended.first_offset, appended.last_offset, appended.log_append_time_ms) == (3, 4, -1)
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_the_leader_epoch_is_written_into_the_batch_and_the_cache():
    log = new_log()
    append(log, leader_epoch=4)
    append(log, leader_epoch=6)
    assert log.latest_epoch == 6
    assert log.end_offset_for_epoch(4) == (4, 1)
    assert log.end_offset_for_epoch(6) == (6, 2)
    assert [header.leader_epoch for _, header in log.active.batches()] == [4, 6]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_taken_as_it_is(codec):
    log = new_log()
    append(log, batch(5, codec=codec))
    assert [header.codec for _, header in log.active.batches()] == [codec]
    assert len(read_all(log)) == 5


def test_too_large():
    assert refused(new_log(small(max_message_bytes=100)), batch(value=b"x" * 100)) is ErrorCode.MESSAGE_TOO_LARGE


def test_larger_than_a_segment():
    assert refused(new_log(), batch(value=b"x" * 1000)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_wrong_checksum():
    data = bytearray(batch())
    data[-1] ^= 1
    assert refused(new_log(), bytes(data)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 70])
def test_a_batch_that_is_cut_short(cut):
    assert refused(new_log(), batch()[:cut]) is ErrorCode.INVALID_RECORD


def test_two_batches():
    assert refused(new_log(), batch() + batch()) is ErrorCode.INVALID_RECORD


def test_an_older_format():
    data = bytearray(batch())
    data[16] = 1
    assert refused(new_log(), bytes(data)) is ErrorCode.INVALID_RECORD


def test_a_base_offset_that_is_not_zero():
    assert refused(new_log(), batch(base_offset=5)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("position", "value"), [(57, 3), (57, 0), (23, 5), (23, -1)])
def test_a_count_that_lies(position, value):
    assert refused(new_log(), patched(batch(2), position, ">i", value)) is ErrorCode.INVALID_RECORD


def test_records_that_lie_in_an_uncompressed_batch():
    data = bytearray(batch(2))
    data[61] += 2  # the first record's length
    restamp(data, 0)
    assert refused(new_log(), bytes(data)) is ErrorCode.INVALID_RECORD


def test_records_that_lie_in_a_compressed_batch_are_found_where_asked_for():
    data = patched(patched(batch(2, codec=Codec.ZSTD), 57, ">i", 3), 23, ">i", 2)
    append(new_log(), data)
    assert refused(new_log(validation=Validation.ALL), data) is ErrorCode.INVALID_RECORD


def test_an_unknown_codec():
    assert refused(new_log(), patched(batch(), 21, ">h", 5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_control_batch_from_a_producer():
    data = encode_end_marker(commit=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp=NOW)
    assert refused(new_log(), data) is ErrorCode.INVALID_RECORD
    assert refused(new_log(), patched(batch(), 21, ">h", CONTROL)) is ErrorCode.INVALID_RECORD


def test_a_producer_without_a_sequence():
    assert refused(new_log(), batch(producer_id=1, producer_epoch=0)) is ErrorCode.INVALID_RECORD


def test_timestamps_out_of_bounds():
    log = new_log(small(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=2000))
    assert refused(log, batch(timestamp=NOW - 1001)) is ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch(timestamp=NOW + 2001)) is ErrorCode.INVALID_TIMESTAMP
    append(log, batch(timestamp=NOW - 1000))
    append(log, batch(timestamp=NOW + 2000))
    append(log, batch(timestamp=-1))


def test_the_oldest_record_counts_not_the_first():
    log = new_log(small(message_timestamp_before_max_ms=1000))
    mixed = encode_batch([Record(-1, NOW, b"k", b"v"), Record(-1, NOW - 5000, b"k", b"v")])
    assert refused(log, mixed) is ErrorCode.INVALID_TIMESTAMP


def test_a_producer_may_not_claim_the_append_time():
    assert refused(new_log(), patched(batch(), 21, ">h", LOG_APPEND_TIME)) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_compacted_topic_wants_keys(codec):
    log = new_log(small(cleanup_policy=("compact",)))
    assert refused(log, batch(key=None, codec=codec)) is ErrorCode.INVALID_RECORD
    append(log, batch(codec=codec))


def test_a_header_that_hides_the_largest_timestamp_is_put_right():
    log = new_log()
    append(log, patched(batch(timestamp=NOW), 35, ">q", NOW + 500))
    assert [header.max_timestamp for _, header in log.active.batches()] == [NOW]
    data = log.read(0, 1000).records.read()
    assert decode_batch(data)[0].timestamp == NOW


def test_log_append_time():
    log = new_log(small(message_timestamp_type="LogAppendTime"))
    appended = append(log, batch(2, timestamp=5), now_ms=NOW + 7)
    assert appended.log_append_time_ms == NOW + 7
    assert {record.timestamp for record in read_all(log)} == {NOW + 7}


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", [Codec.NONE, Codec.ZSTD])
def test_a_topic_with_a_codec_recompresses(wanted, sent):
    log = new_log(small(compression_type=wanted))
    append(log, batch(4, value=b"x" * 30, codec=sent))
    (header,) = (header for _, header in log.active.batches())
    assert header.codec.name.lower() == ("none" if wanted == "uncompressed" else wanted)
    assert [record.value for record in read_all(log)] == [b"x" * 30] * 4


def test_a_bomb_is_bounded_where_the_broker_decompresses(monkeypatch):
    monkeypatch.setattr("barnabas.storage.validation.MAX_DECOMPRESSED_BYTES", 1000)
    log = new_log(small(compression_type="lz4"))
    assert refused(log, batch(value=b"x" * 5000, codec=Codec.ZSTD)) is ErrorCode.CORRUPT_MESSAGE


def test_the_raft_leader_writes_control_batches():
    log = new_log()
    data = patched(batch(), 21, ">h", CONTROL)
    append(log, data, origin=Origin.RAFT_LEADER)
    assert log.log_end_offset == 1


def test_rolling_by_size_keeps_segments_below_the_limit():
    log = new_log()
    for _ in range(40):
        append(log)
    assert len(log.segments) > 2
    assert all(segment.size <= 1000 for segment in log.segments)
    assert offsets(log) == list(range(40))


def test_rolling_by_time_goes_by_the_records():
    log = new_log(small(segment_ms=1000))
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 1000))
    assert len(log.segments) == 1
    append(log, batch(timestamp=NOW + 1001))
    assert len(log.segments) == 2


def test_rolling_by_time_without_timestamps_goes_by_the_clock():
    log = new_log(small(segment_ms=1000))
    append(log, batch(timestamp=-1))
    append(log, batch(timestamp=-1), now_ms=NOW + 1001)
    assert len(log.segments) == 2


def test_rolling_is_spread_by_jitter():
    class Nine:
        def randrange(self, start: int, stop: int) -> int:
            return 900

        def randbytes(self, n: int) -> bytes:
            return bytes(n)

    log = new_log(small(segment_ms=1000, segment_jitter_ms=1000), random=Nine())
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 101))
    assert len(log.segments) == 2


def test_rolling_when_the_index_is_full():
    log = new_log(small(segment_bytes=1 << 20, segment_index_bytes=36, index_interval_bytes=0))
    for _ in range(20):
        append(log)
    assert len(log.segments) > 3


def test_rolling_before_an_offset_would_no_longer_fit():
    log = new_log()
    append(log)
    log.append_as_follower(memoryview(batch(base_offset=2**31 + 5, leader_epoch=0)))
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 5]
    assert offsets(log) == [0, 2**31 + 5]


def test_settings_take_effect_at_once():
    log = new_log()
    log.update_settings(small(max_message_bytes=10))
    assert refused(log, batch()) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_follower_keeps_offsets_epochs_and_gaps():
    log = new_log()
    chunk = batch(2, base_offset=3, leader_epoch=1) + batch(1, base_offset=9, leader_epoch=2)
    assert log.append_as_follower(memoryview(chunk + batch()[:40])) == 10
    assert offsets(log) == [3, 4, 9]
    assert log.epochs.entries == [(1, 3), (2, 9)]


def test_a_follower_refuses_what_goes_back_and_what_is_corrupt():
    log = new_log()
    log.append_as_follower(memoryview(batch(2, base_offset=0)))
    with pytest.raises(ApiError):
        log.append_as_follower(memoryview(batch(base_offset=1)))
    torn = bytearray(batch(base_offset=2))
    torn[-1] ^= 1
    with pytest.raises(ApiError) as caught:
        log.append_as_follower(memoryview(torn))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 2


def test_a_follower_rolls_between_batches():
    log = new_log()
    chunk = b"".join(batch(base_offset=offset) for offset in range(40))
    log.append_as_follower(memoryview(chunk))
    assert len(log.segments) > 2
    assert all(segment.size <= 1000 for segment in log.segments)
    assert offsets(log) == list(range(40))


def test_a_follower_takes_the_batch_in_whose_middle_the_leaders_log_begins():
    log = new_log()
    log.truncate_fully_and_start_at(60)
    assert log.append_as_follower(memoryview(batch(100, base_offset=0) + batch(base_offset=100))) == 101
    assert log.log_start_offset == 0
    log.delete_records_before(60)
    assert (log.log_start_offset, log.log_end_offset) == (60, 101)
    with pytest.raises(ApiError):
        log.append_as_follower(memoryview(batch(base_offset=50)))


@pytest.mark.parametrize("base_offset", [0, 50])
def test_a_batch_before_the_start_of_an_empty_log_is_refused(base_offset: int):
    log = new_log()
    log.truncate_fully_and_start_at(60)
    with pytest.raises(ApiError):
        log.append_as_follower(memoryview(batch(10, base_offset=base_offset)))
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
