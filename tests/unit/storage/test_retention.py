"""Retention, DeleteRecords and truncation."""

from __future__ import annotations

import pytest

from barnabas.model.errors import ApiError
from barnabas.model.ports import DiskError
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage import flush_plan
from tests.unit.storage.kit import DIRECTORY, NOW, append, batch, new_log, offsets, open_log, read_all, small


def filled(disk=None, count: int = 40, **settings):
    log = open_log(disk or SimDisk(), small(**settings))
    for number in range(count):
        append(log, batch(timestamp=NOW + number * 1000))
    return log


def test_by_time_whole_segments_go_once_their_newest_record_is_old():
    log = filled(retention_ms=20_000)
    second = log.segments[1].base_offset
    newest = NOW + (second - 1) * 1000
    assert log.delete_old_segments(newest + 20_000, log.log_end_offset) == 0
    assert log.delete_old_segments(newest + 20_001, log.log_end_offset) == 1
    assert (log.log_start_offset, log.bases[0]) == (second, second)
    assert offsets(log) == list(range(second, 40))


def test_by_size():
    log = filled(retention_bytes=2000)
    total = log.size_bytes
    assert log.delete_old_segments(NOW, log.log_end_offset) > 0
    assert total > log.size_bytes >= 2000


def test_nothing_above_the_high_watermark_goes():
    log = filled(retention_bytes=0)
    second, third = log.segments[1].base_offset, log.segments[2].base_offset
    log.delete_old_segments(NOW, third - 1)
    assert log.log_start_offset == second


def sync_names(log):
    task = log.begin_naming()
    log.finish_flush(task, flush_plan.sync_here(log, task))


def test_everything_may_go_and_the_end_is_remembered():
    disk = SimDisk()
    log = filled(disk, retention_ms=1)
    log.delete_old_segments(NOW * 2, log.log_end_offset)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert offsets(log) == []
    assert log.awaits_deletion
    sync_names(log)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (40, 40, 0)
    assert not log.awaits_deletion
    disk.crash()
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert append(log).first_offset == 40


@pytest.mark.parametrize("seed", range(10))
def test_the_end_is_remembered_by_what_is_not_deleted_yet(seed):
    """A loss of power may take the name of the empty segment, which is not synced: then the last one is still there."""
    disk = SimDisk(seed)
    log = filled(disk, retention_ms=1)
    log.flush()
    for _ in range(2):
        log.delete_old_segments(NOW * 2, log.log_end_offset)
    assert log.awaits_deletion
    disk.crash()
    log = open_log(disk, recovery_point=40)
    assert log.log_end_offset == 40
    assert append(log).first_offset == 40


def test_what_is_appended_before_the_last_file_goes_is_kept():
    disk = SimDisk()
    log = filled(disk, retention_ms=1)
    log.delete_old_segments(NOW * 2, log.log_end_offset)
    task = log.begin_naming()
    append(log)
    log.finish_flush(task, flush_plan.sync_here(log, task))
    assert log.unflushed_messages > 0, "names say nothing of what is in the files"
    assert (offsets(log), len(log.segments)) == ([40], 1)


def test_compacted_topics_keep_old_segments():
    log = filled(retention_ms=1, retention_bytes=0, cleanup_policy=("compact",))
    assert log.delete_old_segments(NOW * 2, log.log_end_offset) == 0


def test_files_go_after_their_delay():
    log = filled(retention_bytes=0, file_delete_delay_ms=500)
    log.delete_old_segments(NOW, log.log_end_offset)
    deleted = [name for name in log.disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert deleted
    assert log.remove_deleted_files(NOW + 499) == len(deleted)
    assert log.remove_deleted_files(NOW + 500) == 0
    assert not [name for name in log.disk.list(DIRECTORY) if name.endswith(".deleted")]


def test_a_reader_keeps_its_range_while_the_segment_is_deleted():
    log = filled(retention_bytes=0)
    records = log.read(0, 500).records
    assert records is not None
    log.delete_old_segments(NOW, log.log_end_offset)
    assert len(records.read()) == records.size


def test_delete_records():
    log = filled()
    second = log.segments[1].base_offset
    assert log.delete_records_before(second - 1) == second - 1
    assert log.bases[0] == 0
    assert log.delete_records_before(second + 1) == second + 1
    assert log.bases[0] == second
    assert log.delete_records_before(3) == second + 1
    assert read_all(log)[0].offset == second + 1
    with pytest.raises(ApiError):
        log.delete_records_before(41)
    assert log.delete_records_before(40) == 40
    assert append(log).first_offset == 40


def test_the_log_start_survives_a_restart_by_its_checkpoint():
    disk = SimDisk()
    log = filled(disk)
    log.delete_records_before(3)
    log.close()
    log = open_log(disk, clean=True, log_start_offset=3)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (3, 3, 40)


@pytest.mark.parametrize("offset", range(41))
def test_truncate_to_any_offset(offset):
    disk = SimDisk()
    log = filled(disk)
    assert log.truncate_to(offset) == (offset < 40)
    assert log.log_end_offset == offset
    assert offsets(log) == list(range(offset))
    append(log, batch(2, timestamp=NOW), leader_epoch=1)
    assert offsets(log) == list(range(offset + 2))
    log.close()
    log = open_log(disk, clean=True)
    assert offsets(log) == list(range(offset + 2))
    assert log.offset_of_max_timestamp() is not None
    log = open_log(disk)
    assert offsets(log) == list(range(offset + 2))


def test_truncating_into_a_batch_takes_all_of_it():
    log = new_log()
    append(log, batch(3))
    append(log, batch(3))
    log.truncate_to(4)
    assert log.log_end_offset == 3


def test_truncate_fully():
    disk = SimDisk()
    log = filled(disk)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert append(log).first_offset == 1000
    log = open_log(disk)
    assert offsets(log) == [1000]


def test_truncating_below_the_first_segment_starts_over():
    log = filled(retention_bytes=0)
    log.delete_old_segments(NOW, log.log_end_offset)
    log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


def test_a_flush_that_was_under_way_during_a_truncation_proves_nothing():
    log = filled(count=5)
    task = log.begin_flush()
    log.truncate_to(2)
    for _ in range(5):
        append(log)
    for item in task.files:
        item.file.sync()
    log.finish_flush(task)
    assert log.flushed_offset <= 2


def test_flush_settings():
    log = new_log(small(flush_messages=3, flush_ms=100))
    append(log)
    append(log)
    assert not log.flush_due(NOW)
    assert log.flush_due(NOW + 100)
    append(log)
    assert log.flush_due(NOW)
    log.flush()
    assert (log.unflushed_messages, log.flushed_offset) == (0, 3)
    assert not log.flush_due(NOW + 1000)
    append(log, now_ms=NOW + 5000)
    assert not log.flush_due(NOW + 5099)
    assert log.flush_due(NOW + 5100)


def test_places_remembered_from_before_a_truncation_are_forgotten():
    log = new_log(small(segment_bytes=100_000))
    for _ in range(5):
        append(log)
    read_all(log, 0, 100)
    log.truncate_to(1)
    append(log, batch(3, value=b"longer" * 9))
    append(log)
    for offset in range(5):
        assert [record.offset for record in read_all(log, offset)] == list(range(offset, 5))


@pytest.mark.parametrize("seed", range(10))
def test_what_was_cut_does_not_come_back_after_a_power_cut(seed):
    disk = SimDisk(seed)
    log = filled(disk, count=8, segment_bytes=100_000)
    log.flush()
    log.truncate_to(3)
    disk.crash()
    assert open_log(disk, recovery_point=3).log_end_offset == 3


def test_a_full_disk_lets_all_go_but_the_last_segment():
    """It needs an empty one in its place, and that has to wait until there is room."""
    log = filled(retention_ms=1, file_delete_delay_ms=0)
    segments = len(log.segments)
    log.disk.fail_next(Fault.ENOSPC)
    assert log.delete_old_segments(NOW * 2, log.log_end_offset) == segments - 1
    assert log.offline is None
    assert log.log_start_offset == log.bases[0] > 0
    assert append(log).first_offset == 40
    log.delete_old_segments(NOW * 2, log.log_end_offset)
    log.disk.fail_next(Fault.ENOSPC)
    with pytest.raises(DiskError):
        log.begin_flush()
    sync_names(log)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (41, 41, 0)


def test_records_are_deleted_on_a_full_disk():
    log = filled()
    log.disk.fail_next(Fault.ENOSPC)
    assert log.delete_records_before(40) == 40
    assert log.offline is None
    assert offsets(log) == []
    assert len(log.segments) == 1
