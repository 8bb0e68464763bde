"""Where reads begin and end, and look-ups by time and epoch."""

from __future__ import annotations

import pytest

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.sim.disk import SimDisk
from barnabas.wire.batch import iterate
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, encode_batch
from tests.unit.storage.kit import NOW, append, batch, new_log, open_log, read_all, small


def filled(count: int = 60, **settings):
    log = new_log(small(**settings))
    for number in range(count):
        append(log, batch(1 + number % 3, value=b"%d" % number * (1 + number % 7), timestamp=NOW + number))
    return log


def test_any_offset_and_any_size_give_whole_batches_from_the_right_place():
    log = filled()
    everything = read_all(log)
    assert [record.offset for record in everything] == list(range(log.log_end_offset))
    for offset in range(log.log_end_offset):
        for max_bytes in (1, 90, 200, 333, 5000):
            result = log.read(offset, max_bytes)
            assert result.records is not None
            assert result.first_offset <= offset < result.next_offset
            first = result.records.read()[:12]
            first_size = int.from_bytes(first[8:12]) + 12
            assert result.size <= max_bytes or result.size == first_size
    for start in range(0, log.log_end_offset, 7):
        for max_bytes in (1, 250, 5000):
            assert read_all(log, start, max_bytes) == everything[start:]


def test_a_cold_log_reads_the_same():
    disk = SimDisk()
    log = open_log(disk)
    for number in range(60):
        append(log, batch(1 + number % 3))
    expected = read_all(log)
    log.close()
    log = open_log(disk, clean=True)
    assert read_all(log, 0, 170) == expected
    assert [log.read(offset, 1).first_offset <= offset for offset in range(log.log_end_offset)]


@pytest.mark.parametrize("max_bytes", [1, 150, 100_000])
def test_nothing_at_or_after_the_maximum_is_given(max_bytes):
    log = filled()
    boundaries = [header.next_offset for segment in log.segments for _, header in segment.batches()]
    for maximum in range(1, log.log_end_offset + 1):
        seen = 0
        while (result := log.read(seen, max_bytes, max_offset=maximum)).records is not None:
            seen = result.next_offset
            assert seen <= maximum
            data = result.records.read()
            assert sum(header.size for _, header in iterate(data)) == len(data)
        assert seen == max((end for end in boundaries if end <= maximum), default=0)


def test_the_first_batch_only_where_it_is_wanted_at_any_size():
    log = filled()
    assert log.read(0, 10).size > 10
    result = log.read(0, 10, minimum_one=False)
    assert (result.records, result.next_offset) == (None, 0)
    assert read_all(log)[0].offset == 0


def test_the_ends_of_the_log():
    log = filled(5)
    end = log.log_end_offset
    assert log.read(end, 100).records is None
    for offset in (end + 1, -1):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records_before(2)
    with pytest.raises(ApiError):
        log.read(1, 100)


def test_gaps_are_stepped_over():
    log = new_log()
    for base in (0, 10, 20, 2000, 2001):
        log.append_as_follower(memoryview(batch(base_offset=base, value=b"x" * 200)))
    assert len(log.segments) > 1
    assert log.read(5, 100).first_offset == 10
    assert [record.offset for record in read_all(log, 11)] == [20, 2000, 2001]
    assert log.read(11, 5000, max_offset=15).records is None


def test_times():
    log = filled()
    records = read_all(log)
    for timestamp in range(NOW - 2, NOW + 60):
        found = log.offset_for_timestamp(timestamp)
        expected = next(record for record in records if record.timestamp >= timestamp)
        assert found is not None
        assert (found.offset, found.timestamp, found.leader_epoch) == (expected.offset, expected.timestamp, 0)
    assert log.offset_for_timestamp(NOW + 60) is None


def test_times_out_of_order_and_compressed():
    log = new_log()
    times = [5, 3, 9, 1, 9, 20, 2]
    for number, time in enumerate(times * 5):
        records = [Record(-1, NOW + time + shift, b"k", b"v") for shift in (0, 100 * number, 1)]
        append(log, encode_batch(records, codec=Codec.LZ4 if number % 2 else Codec.NONE))
    records = read_all(log)
    for timestamp in range(NOW, NOW + 3500, 13):
        expected = next((record.offset for record in records if record.timestamp >= timestamp), None)
        found = log.offset_for_timestamp(timestamp)
        assert (found.offset if found else None) == expected
    latest = max(record.timestamp for record in records)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp) == next(
        (record.offset, latest) for record in records if record.timestamp == latest
    )


def test_times_respect_the_log_start():
    log = filled(10, segment_bytes=100_000)
    log.delete_records_before(4)
    found = log.offset_for_timestamp(NOW)
    assert found is not None
    assert found.offset == 4


def test_an_empty_log_has_no_times():
    log = new_log()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_epochs():
    log = new_log()
    assert log.end_offset_for_epoch(0) == (-1, -1)
    for leader_epoch, count in ((2, 3), (3, 2), (6, 4)):
        for _ in range(count):
            append(log, leader_epoch=leader_epoch)
    assert log.end_offset_for_epoch(1) == (1, 0)
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(4) == (3, 5)
    assert log.end_offset_for_epoch(6) == (6, 9)
    assert log.end_offset_for_epoch(7) == (-1, -1)
    log.assign_epoch_start(8)
    assert log.end_offset_for_epoch(7) == (6, 9)
    log.truncate_to(4)
    assert log.epochs.entries == [(2, 0), (3, 3)]
    log.delete_records_before(3)
    assert log.epochs.entries == [(3, 3)]
