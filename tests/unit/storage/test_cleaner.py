"""Compaction, rule by rule. What holds for any log is in test_cleaner_machine; crashes are in test_cleaner_crash."""

from __future__ import annotations

import pytest

from barnabas.model.errors import ApiError
from barnabas.storage.cleaner import CleaningCancelled, MapTooSmall
from barnabas.storage.cleaner_plan import dirty_range
from barnabas.storage.producer_state import Origin
from barnabas.wire import walk
from barnabas.wire.batch import CorruptBatch
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, encode_batch
from tests.unit.storage.cleaning import begin, clean, compacted, headers, roll
from tests.unit.storage.kit import (
    DIRECTORY,
    NOW,
    append,
    batch,
    end_transaction,
    new_log,
    offsets,
    open_log,
    produce,
    read_all,
    small,
    values,
)

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=["native", "python"], autouse=True)
def twin(request: pytest.FixtureRequest):
    if request.param == "native" and not walk.NATIVE_AVAILABLE:
        pytest.skip("the native walks were not built")
    before = walk.NATIVE
    walk.use(native=request.param == "native")
    yield
    walk.use(native=before)


def put(log, key, value, **arguments):
    return append(log, batch(key=key, value=value, **arguments))


@pytest.mark.parametrize("codec", list(Codec))
def test_keeps_the_latest_of_every_key_at_its_offset(codec):
    log = new_log(compacted())
    for number in range(30):
        records = [Record(-1, NOW + number, b"%d" % (key % 7), b"%d-%d" % (number, key)) for key in range(number)]
        append(log, encode_batch(records or [Record(-1, NOW, b"x", b"y")], codec=codec))
    roll(log)
    latest = {record.key: record for record in read_all(log)}
    before = log.size_bytes
    assert clean(log) == log.log_end_offset
    assert read_all(log) == sorted(latest.values())
    assert log.size_bytes < before
    assert all(header.attributes & 7 in (codec, Codec.NONE) for header in headers(log))
    assert read_all(open_log(log.disk, compacted(), clean=False)) == sorted(latest.values())


def test_the_active_segment_and_unstable_records_stay():
    log = new_log(compacted())
    put(log, b"a", b"1")
    roll(log)
    put(log, b"a", b"2")
    assert clean(log) == 1
    assert values(log) == [b"1", b"2"]
    produce(log, 7, 0, transactional=True)
    roll(log)
    assert clean(log) == 1, "the segment has an open transaction"
    end_transaction(log, 7, commit=True)
    roll(log)
    assert clean(log) == 4
    assert offsets(log) == [1, 2, 3]


def test_tombstones_stay_until_their_horizon_has_passed():
    settings = compacted(delete_retention_ms=DAY_MS)
    log = new_log(settings)
    put(log, b"a", b"1")
    put(log, b"a", None)
    put(log, b"b", b"1")
    roll(log)
    cleaned = clean(log, now_ms=NOW)
    assert [(record.offset, record.value, record.timestamp) for record in read_all(log)] == [
        (1, None, NOW),
        (2, b"1", NOW),
    ]
    tombstone = headers(log)[0]
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == NOW + DAY_MS
    put(log, b"c", b"1")
    roll(log)
    cleaned = clean(log, cleaned, now_ms=NOW + DAY_MS - 1)
    assert offsets(log) == [1, 2, 3]
    assert headers(log)[0].base_timestamp == NOW + DAY_MS, "the horizon is set once"
    put(log, b"c", b"2")
    roll(log)
    clean(log, cleaned, now_ms=NOW + DAY_MS)
    assert offsets(log) == [2, 4]


def test_a_horizon_does_not_change_timestamps_or_headers():
    log = new_log(compacted())
    kept = [
        Record(0, NOW + 5, b"a", None, (("h", b"1"), ("n", None))),
        Record(1, NOW - 100_000, b"b", b"v" * 300),
        Record(2, NOW + 9, b"c", None),
    ]
    append(log, encode_batch(kept, codec=Codec.ZSTD))
    roll(log)
    clean(log)
    assert read_all(log) == kept
    assert headers(log)[0].max_timestamp == NOW + 9


def test_records_without_a_key_go():
    log = new_log(small())
    for _ in range(3):
        append(log, batch(key=None))
    put(log, b"a", b"1")
    roll(log)
    log.update_settings(compacted())
    clean(log)
    assert offsets(log) == [3]


def test_aborted_records_go_and_their_marker_follows():
    log = new_log(compacted(delete_retention_ms=DAY_MS))
    put(log, b"key", b"before")
    produce(log, 7, 0, transactional=True)
    end_transaction(log, 7, commit=False)
    produce(log, 7, 1, transactional=True, key=b"other")
    end_transaction(log, 7, commit=True)
    roll(log)
    cleaned = clean(log)
    assert values(log)[0] == b"before", "an aborted record does not supersede anything"
    assert offsets(log) == [0, 2, 3, 4]
    assert log.aborted_transactions(0, 10)
    put(log, b"x", b"1")
    roll(log)
    cleaned = clean(log, cleaned, now_ms=NOW + 1)
    assert not log.aborted_transactions(0, 10), "no batch of it is left"
    assert [header.has_delete_horizon for header in headers(log)][1]
    put(log, b"x", b"2")
    roll(log)
    clean(log, cleaned, now_ms=NOW + 1 + DAY_MS)
    assert offsets(log) == [0, 3, 4, 6], "the marker of the aborted transaction is gone, the other's data is there"


def test_an_aborted_transaction_is_over_for_the_next_of_its_producer():
    log = new_log(compacted())
    put(log, b"key", b"before")
    produce(log, 7, 0, transactional=True)
    end_transaction(log, 7, commit=False)
    roll(log)
    cleaned = clean(log)
    produce(log, 7, 1, transactional=True, value=b"after")
    end_transaction(log, 7, commit=True)
    roll(log)
    clean(log, cleaned)
    assert b"before" not in values(log)
    assert b"after" in values(log)


def test_a_producer_goes_on_where_it_was():
    log = new_log(compacted())
    for sequence in range(5):
        produce(log, 7, sequence, key=b"same", value=b"%d" % sequence)
    put(log, b"same", b"last")
    put(log, b"z", b"z")
    roll(log)
    clean(log)
    assert offsets(log) == [5, 6]
    empty = headers(log)[0]
    assert (empty.record_count, empty.producer_id, empty.base_sequence, empty.base_offset) == (0, 7, 4, 4)
    for name in log.disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            log.disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(log.disk, compacted())
    with pytest.raises(ApiError):
        produce(log, 7, 7)
    assert produce(log, 7, 4, key=b"same", value=b"4").duplicate
    assert produce(log, 7, 5).first_offset == 7


def test_segments_are_joined_up_to_their_size():
    log = new_log(compacted(segment_bytes=1000))
    for number in range(100):
        put(log, b"%d" % (number % 3), b"%d" % number)
    roll(log)
    count = len(log.segments)
    clean(log)
    cleaned = clean(log, 0)
    assert len(log.segments) < count / 3
    assert offsets(log) == [97, 98, 99]
    assert cleaned == 100
    assert log.snapshots.offsets[-1] == 100
    assert set(log.snapshots.offsets) <= set(log.bases)
    for segment in log.segments[:-1]:
        *_, (_, last) = segment.batches()
        assert last.next_offset == segment.next_offset, "a segment says where it ends"


def test_a_full_map_cleans_up_to_where_it_got():
    log = new_log(compacted())
    for number in range(60):
        put(log, b"%d" % (number % 20), b"%d" % number)
    roll(log)
    cleaned = None
    rounds = 0
    while cleaned != 60:
        before = cleaned
        cleaned = clean(log, cleaned, capacity=7)
        assert before is None or cleaned > before
        rounds += 1
        assert {record.key: record.value for record in read_all(log)} == {
            b"%d" % n: b"%d" % (40 + n) for n in range(20)
        }
    assert rounds > 3
    assert offsets(log) == list(range(40, 60))


def test_a_batch_with_more_keys_than_the_map_takes():
    log = new_log(compacted())
    append(log, encode_batch([Record(-1, NOW, b"%d" % key, b"v") for key in range(10)]))
    roll(log)
    with pytest.raises(MapTooSmall):
        clean(log, capacity=5)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_broken_batch_stops_the_cleaning_and_leaves_the_log(codec):
    log = new_log(compacted())
    append(log, batch(5, codec=codec))
    append(log, batch(5, codec=codec))
    roll(log)
    segment = log.segments[0]
    segment.open_log().write([b"\x7f"], segment.size - 3)
    names = log.disk.list(DIRECTORY)
    with pytest.raises(CorruptBatch):
        clean(log)
    assert log.disk.list(DIRECTORY) == names


def test_what_is_dirty():
    log = new_log(compacted(min_compaction_lag_ms=1000, max_compaction_lag_ms=5000))
    put(log, b"a", b"1", timestamp=NOW)
    roll(log)
    put(log, b"a", b"2", timestamp=NOW + 2000)
    roll(log)
    end = log.log_end_offset
    assert dirty_range(log, None, end, NOW + 500) is None
    first = dirty_range(log, None, end, NOW + 1000)
    assert first is not None
    assert (first.first_dirty_offset, first.end_offset, first.ratio, first.is_overdue) == (0, 1, 1.0, False)
    both = dirty_range(log, None, end, NOW + 5001)
    assert both is not None
    assert (both.end_offset, both.is_overdue) == (2, True)
    second = dirty_range(log, 1, end, NOW + 5001)
    assert second is not None
    assert (second.ratio, second.is_overdue, second.is_due(0.5), second.is_due(0.4)) == (0.5, False, False, True)
    assert dirty_range(log, 2, end, NOW + 10_000) is None
    assert dirty_range(log, None, 0, NOW + 10_000) is None, "nothing is below the high watermark"
    beyond = dirty_range(log, 1000, end, NOW + 10_000)
    assert beyond is not None
    assert beyond.first_dirty_offset == 0, "a checkpoint beyond the log is no checkpoint"


def test_readers_of_old_segments_read_on_and_retention_waits():
    log = new_log(compacted(cleanup_policy=("compact", "delete"), retention_ms=0))
    for number in range(20):
        put(log, b"a", b"%d" % number)
    roll(log)
    ranges = log.read(0, 1 << 20).records
    assert ranges is not None
    before = ranges.read()
    log.is_being_cleaned = True
    assert log.delete_old_segments(NOW + 10, log.log_end_offset) == 0
    clean(log)
    log.is_being_cleaned = False
    assert ranges.read() == before
    assert log.delete_old_segments(NOW + 10, log.log_end_offset) > 0
    assert log.remove_deleted_files(NOW + 10 + log.settings.file_delete_delay_ms) == 0
    assert not [name for name in log.disk.list(DIRECTORY) if name.endswith(".deleted")]


def test_a_cancelled_cleaning_leaves_nothing():
    log = new_log(compacted())
    for number in range(50):
        put(log, b"a", b"%d" % number)
    roll(log)
    names = log.disk.list(DIRECTORY)
    cleaning = begin(log)
    assert cleaning is not None
    cleaning.build_map()
    cleaning.cancelled = True
    with pytest.raises(CleaningCancelled):
        cleaning.clean_group(cleaning.groups[0])
    assert log.disk.list(DIRECTORY) == names


def test_log_append_time_and_large_batches():
    log = new_log(compacted(message_timestamp_type="LogAppendTime", segment_bytes=100_000))
    for number in range(4):
        append(log, batch(3, key=b"a", value=b"x" * 9000), now_ms=NOW + number)
    roll(log)
    clean(log, chunk_bytes=100)
    assert [(record.offset, record.timestamp) for record in read_all(log)] == [(11, NOW + 3)]


def test_origin_of_coordinators_is_compacted_too():
    log = new_log(compacted())
    for number in range(10):
        append(log, batch(key=b"group", value=b"%d" % number), origin=Origin.COORDINATOR)
    roll(log)
    clean(log)
    assert values(log) == [b"9"]
