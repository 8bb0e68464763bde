"""Data folders: loading, creating, deleting, checkpoints and the clean shutdown marker."""

from __future__ import annotations

import contextlib

import pytest

from barnabas.model.ids import TopicPartition, Uuid
from barnabas.model.ports import DiskError
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage import checkpoints
from barnabas.storage.errors import LogOffline
from barnabas.storage.log_directory import DirectoryLocked, LogDirectory, find_logs, parse_directory_name
from barnabas.storage.log_manager import LogManager
from barnabas.storage.retention import REMOVE_AGAIN_MS
from tests.unit.storage.kit import NOW, append, offsets, small

TOPIC_ID = Uuid(bytes(range(16)))
A, B, C = (TopicPartition("topic-with-dash", partition) for partition in range(3))


def manager(disk: SimDisk, *paths: str) -> LogManager:
    made = LogManager([LogDirectory(disk, path) for path in paths or ("/data",)])
    made.load(lambda _partition, _topic_id: small(), now_ms=NOW)
    return made


def test_a_clean_stop_is_recognised_and_its_marker_taken_away():
    disk = SimDisk()
    first = manager(disk)
    log = first.create(A, TOPIC_ID, small(), now_ms=NOW)
    for _ in range(20):
        append(log)
    log.delete_records_before(2)
    assert first.close(broker_epoch=7, high_watermarks={A: 20})
    assert disk.read_file("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":7}'

    second = manager(disk)
    assert second.directories[0].was_clean
    assert second.directories[0].previous_broker_epoch == 7
    assert not disk.exists("/data/.kafka_cleanshutdown")
    log = second.get(A)
    assert log is not None
    assert (log.topic_id, log.log_start_offset, log.log_end_offset, log.flushed_offset) == (TOPIC_ID, 2, 20, 20)
    assert second.checkpointed_high_watermark(A) == 20

    del second
    disk.unlock("/data/.lock")
    third = manager(disk)
    assert not third.directories[0].was_clean
    assert offsets(third.get(A)) == list(range(2, 20))


def test_files_are_kafkas():
    disk = SimDisk()
    one = manager(disk)
    log = one.create(A, TOPIC_ID, small(), now_ms=NOW)
    append(log)
    log.flush()
    append(log)
    one.checkpoint({A: 1})
    assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\ntopic-with-dash 0 1\n"
    assert disk.read_file("/data/replication-offset-checkpoint") == b"0\n1\ntopic-with-dash 0 1\n"
    assert (
        disk.read_file("/data/topic-with-dash-0/partition.metadata")
        == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    )
    assert disk.read_file("/data/topic-with-dash-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"


def test_partitions_go_where_the_fewest_are():
    disk = SimDisk()
    one = manager(disk, "/one", "/two")
    for partition in (A, B, C):
        one.create(partition, TOPIC_ID, small(), now_ms=NOW)
    assert [len(directory.logs) for directory in one.directories] == [2, 1]
    assert one.directory_of(B) is one.directories[1]
    assert len(one) == len(list(one)) == 3


def test_deleting_renames_and_removes_later():
    disk = SimDisk()
    one = manager(disk)
    log = one.create(A, TOPIC_ID, small(file_delete_delay_ms=100), now_ms=NOW)
    append(log)
    one.delete(A, bytes(16), NOW)
    assert one.get(A) is None
    assert "topic-with-dash-0.00000000000000000000000000000000-delete" in disk.list("/data")
    with pytest.raises(LogOffline):
        append(log)
    one.create(A, TOPIC_ID, small(), now_ms=NOW)
    one.sweep(NOW + 99)
    assert len([name for name in disk.list("/data") if name.endswith("-delete")]) == 1
    one.sweep(NOW + 100)
    assert not [name for name in disk.list("/data") if name.endswith("-delete")]
    assert one.get(A) is not None


def test_what_was_being_deleted_is_gone_after_a_restart():
    disk = SimDisk()
    one = manager(disk)
    append(one.create(A, TOPIC_ID, small(), now_ms=NOW))
    one.delete(A, bytes(16), NOW)
    disk.unlock("/data/.lock")
    assert len(manager(disk)) == 0
    assert not [name for name in disk.list("/data") if name.endswith("-delete")]


def test_a_folder_is_used_by_one_process():
    disk = SimDisk()
    manager(disk)
    with pytest.raises(DirectoryLocked):
        manager(disk)


def test_a_failing_folder_takes_only_its_own_logs():
    disk = SimDisk()
    failed: list[str] = []
    directories = [
        LogDirectory(disk, path, on_failure=lambda one, _why: failed.append(one.path)) for path in ("/1", "/2")
    ]
    one = LogManager(directories)
    one.load(lambda _partition, _topic_id: small(), now_ms=NOW)
    first, second = (one.create(partition, TOPIC_ID, small(), now_ms=NOW) for partition in (A, B))
    append(first)
    append(second)
    first.epochs.store(sync=True)
    disk.fail_next()
    with pytest.raises(LogOffline):
        first.flush()
    assert failed == ["/1"]
    append(second)
    assert one.directory_of(C) is None
    assert one.create(C, TOPIC_ID, small(), now_ms=NOW).directory.startswith("/2")
    assert not one.close()
    assert disk.exists("/2/.kafka_cleanshutdown")
    assert not disk.exists("/1/.kafka_cleanshutdown")


def test_a_damaged_checkpoint_means_recovery_not_failure():
    disk = SimDisk()
    one = manager(disk)
    append(one.create(A, TOPIC_ID, small(), now_ms=NOW))
    one.close()
    disk.write_file("/data/recovery-point-offset-checkpoint", b"rubbish")
    two = manager(disk)
    assert not two.directories[0].was_clean
    assert offsets(two.get(A)) == [0]


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a-0", TopicPartition("a", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("a-0.00ff-delete", None),
        ("a-0.00ff-future", None),
        ("meta.properties", None),
        ("-1", None),
        ("a-", None),
    ],
)
def test_names(name, partition):
    assert parse_directory_name(name) == partition


def test_meta_properties_round_trip_and_read_what_java_writes():
    disk = SimDisk()
    disk.make_directory("/data")
    assert checkpoints.read_meta_properties(disk, "/data") is None
    properties = {"version": "1", "cluster.id": "abc", "node.id": "1", "directory.id": "AAECAwQFBgcICQoLDA0ODw"}
    checkpoints.write_meta_properties(disk, "/data", properties)
    assert checkpoints.read_meta_properties(disk, "/data") == properties
    assert LogDirectory(disk, "/data").directory_id == TOPIC_ID
    java = b"#\n#Mon Nov 16 02:48:00 UTC 2026\nnode.id=1\ndirectory.id=x\\:y\nversion=1\n"
    assert checkpoints.read_properties(java) == {"node.id": "1", "directory.id": "x:y", "version": "1"}


@pytest.mark.parametrize("content", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\nx\n"])
def test_malformed_checkpoints(content):
    with pytest.raises(checkpoints.MalformedCheckpoint):
        checkpoints.parse_lines(content, 3)


def test_folders_that_only_look_like_ours_are_let_be():
    disk = SimDisk()
    for path in ("/data/photos-2023/a.jpg", "/data/papers-to-delete/a.tex", "/data/a-0.00ff-delete/x"):
        disk.make_directory(path.rpartition("/")[0])
        disk.write_file(path, b"precious")
    one = manager(disk)
    assert len(one) == 0
    one.sweep(NOW + 10**12)
    assert disk.read_file("/data/photos-2023/a.jpg") == b"precious"
    assert disk.exists("/data/papers-to-delete/a.tex")
    assert disk.exists("/data/a-0.00ff-delete/x")
    assert list(find_logs(disk, "/data")) == []


def test_what_is_in_the_way_of_a_new_log_is_set_aside():
    disk = SimDisk()
    told: list[dict[str, object]] = []
    directory = LogDirectory(disk, "/data", report=lambda event, **fields: told.append(fields))
    one = LogManager([directory])
    one.load(lambda _partition, _topic_id: small(), now_ms=NOW)
    append(one.create(A, TOPIC_ID, small(), now_ms=NOW))
    disk.fail_next()
    with pytest.raises(DiskError):
        one.delete(A, bytes(16), NOW)
    log = one.create(A, TOPIC_ID, small(), now_ms=NOW)
    assert log.log_end_offset == 0
    (moved,) = told
    assert disk.exists(f"{moved['renamed_to']}/00000000000000000000.log")
    disk.unlock("/data/.lock")
    assert [str(log.partition) for log in manager(disk)] == [str(A)]


def test_a_log_set_aside_is_not_loaded_again():
    disk = SimDisk()
    one = manager(disk)
    append(one.create(A, TOPIC_ID, small(), now_ms=NOW))
    folder = one.set_aside(A, bytes(16))
    assert folder == "/data/topic-with-dash-0.00000000000000000000000000000000-stray"
    assert one.get(A) is None
    assert one.set_aside(A, bytes(16)) is None
    disk.unlock("/data/.lock")
    assert len(manager(disk)) == 0
    assert disk.exists(f"{folder}/00000000000000000000.log")


def test_what_cannot_be_removed_is_tried_again():
    disk = SimDisk()
    told: list[str] = []
    one = LogManager([LogDirectory(disk, "/data", report=lambda event, **fields: told.append(event))])
    one.load(lambda _partition, _topic_id: small(), now_ms=NOW)
    gone = one.create(A, TOPIC_ID, small(file_delete_delay_ms=0), now_ms=NOW)
    append(gone)
    one.delete(A, bytes(16), NOW)
    kept = one.create(B, TOPIC_ID, small(file_delete_delay_ms=0, retention_bytes=0), now_ms=NOW)
    for _ in range(20):
        append(kept)
    kept.delete_old_segments(NOW, kept.log_end_offset)
    files = len(kept.doomed)
    assert files > 1
    disk.fail_next(count=files + 1)
    one.sweep(NOW)
    assert len(told) == 2
    assert len(kept.doomed) == files
    one.sweep(NOW + REMOVE_AGAIN_MS)
    assert kept.doomed == []
    assert disk.list("/data") == [str(B)]


OTHER_ID = Uuid(bytes(range(16, 32)))


def _recreate(disk: SimDisk, *, records: int = 10) -> LogManager:
    """A partition with entries in every checkpoint is deleted; another topic gets its name."""
    one = manager(disk)
    log = one.create(A, TOPIC_ID, small(), now_ms=NOW)
    for _ in range(10):
        append(log)
    log.flush()
    log.delete_records_before(8)
    log.cleaned_offset = 8
    one.create(B, TOPIC_ID, small(), now_ms=NOW)
    one.checkpoint({A: 10, B: 0})
    one.delete(A, bytes(16), NOW)
    again = one.create(A, OTHER_ID, small(), now_ms=NOW)
    for _ in range(records):
        append(again)
    return one


@pytest.mark.parametrize("checkpointed_again", [False, True])
def test_a_recreated_partition_does_not_inherit_checkpoints(checkpointed_again: bool):
    disk = SimDisk()
    one = _recreate(disk)
    if checkpointed_again:
        one.directories[0].checkpoint()
    disk.unlock("/data/.lock")  # kill -9
    reports: list[str] = []
    two = LogManager([LogDirectory(disk, "/data", report=lambda event, **_: reports.append(event))])
    two.options.report = lambda event, **_: reports.append(event)
    two.load(lambda _partition, _topic_id: small(), now_ms=NOW)
    log = two.get(A)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (0, 10, None)
    assert offsets(log) == list(range(10))
    assert two.checkpointed_high_watermark(A) == 0
    assert reports == []


@pytest.mark.parametrize("seed", range(20))
def test_a_recreated_partition_does_not_inherit_checkpoints_after_a_power_cut(seed: int):
    disk = SimDisk(seed)
    one = _recreate(disk)
    again = one.get(A)
    assert again is not None
    again.flush()
    disk.crash()
    log = manager(disk).get(A)
    assert log is not None
    assert offsets(log) == list(range(10))


def test_a_checkpoint_under_way_does_not_bring_discarded_entries_back():
    disk = SimDisk()
    one = manager(disk)
    append(one.create(A, TOPIC_ID, small(), now_ms=NOW))
    one.checkpoint({A: 1})
    disk.is_slow = True
    append(one.create(B, TOPIC_ID, small(), now_ms=NOW))
    one.checkpoint({A: 1, B: 1})  # written aside, not in place yet
    one.checkpoint({A: 1, B: 1})  # and one that waits
    one.delete(A, bytes(16), NOW)
    one.create(A, OTHER_ID, small(), now_ms=NOW)
    while disk.release_one():
        pass
    assert b"topic-with-dash 0 1" not in disk.read_file("/data/replication-offset-checkpoint")
    assert b"topic-with-dash 1 1" in disk.read_file("/data/replication-offset-checkpoint")


def test_a_damaged_checkpoint_is_reported_with_its_consequence():
    disk = SimDisk()
    one = manager(disk)
    log = one.create(A, TOPIC_ID, small(), now_ms=NOW)
    for _ in range(5):
        append(log)
    log.delete_records_before(3)
    one.close(broker_epoch=1)
    disk.write_file("/data/log-start-offset-checkpoint", b"0\n1\ntopic-with-")
    reports: list[tuple[str, dict[str, object]]] = []
    directory = LogDirectory(disk, "/data", report=lambda event, **fields: reports.append((event, fields)))
    LogManager([directory]).load(lambda _partition, _topic_id: small(), now_ms=NOW)
    event, fields = reports[0]
    assert "DeleteRecords" in event
    assert fields["file"] == "/data/log-start-offset-checkpoint"
    assert not directory.was_clean


def test_creating_on_a_full_disk_leaves_nothing_behind():
    disk = SimDisk()
    one = manager(disk)
    settings = small(preallocate=True)
    for _ in range(3):
        disk.fail_next_of("allocate", Fault.ENOSPC)
        with pytest.raises(DiskError):
            one.create(A, TOPIC_ID, settings, now_ms=NOW)
        assert [name for name in disk.list("/data") if name.startswith("topic")] == []
    log = one.create(A, TOPIC_ID, settings, now_ms=NOW)
    append(log)
    assert [name for name in disk.list("/data") if name.startswith("topic")] == ["topic-with-dash-0"]


def test_a_mark_of_a_recreated_partition_goes_when_the_checkpoints_are_durable():
    disk = SimDisk()
    one = _recreate(disk)
    assert "checkpoints.obsolete" not in disk.list("/data/topic-with-dash-0")
    disk.is_slow = True
    one.checkpoint({A: 10, B: 0})  # on its way when the partition is deleted
    one.delete(A, bytes(16), NOW)
    one.create(A, TOPIC_ID, small(), now_ms=NOW)
    assert "checkpoints.obsolete" in disk.list("/data/topic-with-dash-0")
    while disk.release_one():
        pass
    assert "checkpoints.obsolete" not in disk.list("/data/topic-with-dash-0")


def test_a_recreated_partition_that_cannot_be_created_can_be_later():
    disk = SimDisk()
    one = _recreate(disk)
    one.checkpoint({A: 10, B: 0})
    one.delete(A, bytes(16), NOW)
    disk.fail_next_of("allocate", Fault.ENOSPC)
    with pytest.raises(DiskError):
        one.create(A, TOPIC_ID, small(preallocate=True), now_ms=NOW)
    one.checkpoint({B: 0})
    append(one.create(A, TOPIC_ID, small(), now_ms=NOW))
    assert one.close(broker_epoch=1)


def test_a_replica_is_made_in_the_folder_that_the_metadata_names():
    disk = SimDisk()
    one = manager(disk, "/one", "/two")
    first, second = one.directories
    first.id, second.id = b"1" * 16, b"2" * 16
    one.create(A, TOPIC_ID, small(), now_ms=NOW, directory_id=second.id, is_new=False)
    assert one.directory_of(A) is second
    one.preferred[B] = "/two"
    one.create(B, TOPIC_ID, small(), now_ms=NOW)
    assert one.directory_of(B) is second, "where an operator wants it"
    one.create(C, TOPIC_ID, small(), now_ms=NOW, directory_id=b"3" * 16, is_new=False)
    assert one.directory_of(C) is first, "its folder has been taken away: it begins anew"


def test_a_replica_of_a_folder_that_is_offline_does_not_begin_anew():
    disk = SimDisk()
    one = manager(disk, "/one", "/two")
    first, second = one.directories
    first.id, second.id = b"1" * 16, b"2" * 16
    second.take_offline("gone")
    for directory_id in (second.id, bytes(16)):
        with pytest.raises(LogOffline):
            one.create(A, TOPIC_ID, small(), now_ms=NOW, directory_id=directory_id, is_new=False)
    assert not disk.exists(f"/one/{A}")
    one.create(A, TOPIC_ID, small(), now_ms=NOW, directory_id=first.id, is_new=False)
    one.create(B, TOPIC_ID, small(), now_ms=NOW, directory_id=bytes(16), is_new=True)
    assert one.directory_of(B) is first


@pytest.mark.parametrize("newer", ["/one", "/two"])
def test_of_two_logs_of_a_partition_the_newer_is_served(newer):
    """As a crash between the two renamings of a move leaves them, and what was appended since."""
    disk = SimDisk()
    for path in ("/one", "/two"):
        alone = manager(disk, path)
        log = alone.create(A, TOPIC_ID, small(), now_ms=NOW)
        append(log)
        if path == newer:
            append(log, leader_epoch=1)
        else:
            append(log)
            append(log)
        log.flush()
        disk.unlock(f"{path}/.lock")
    one = manager(disk, "/one", "/two")
    one.resolve_doubles(lambda: bytes(16))
    assert len(one) == 1
    assert one.directory_of(A).path == newer
    assert offsets(one.get(A)) == [0, 1]
    other = "/two" if newer == "/one" else "/one"
    assert [name for name in disk.list(other) if name.endswith("-stray")]


def test_a_folder_that_is_gone_is_offline_with_the_first_write_that_needs_it():
    disk = SimDisk()
    one = manager(disk, "/one", "/two")
    log = one.create(A, TOPIC_ID, small(), now_ms=NOW)
    append(log)
    disk.rename("/one", "/elsewhere")
    with contextlib.suppress(LogOffline):
        for _ in range(20):
            append(log)
    assert log.offline is not None
    assert one.directories[0].failure is not None
    disk.rename("/two", "/elsewhere-2")
    with pytest.raises(LogOffline):
        one.create(B, TOPIC_ID, small(), now_ms=NOW)
    assert not disk.exists("/two"), "it is not made anew on another disk"


def test_a_read_only_file_system_takes_the_log_offline_and_a_full_one_does_not():
    disk = SimDisk()
    one = manager(disk)
    log = one.create(A, TOPIC_ID, small(), now_ms=NOW)
    append(log)
    disk.fail_next_of("write", Fault.ENOSPC)
    with pytest.raises(DiskError):
        append(log)
    append(log)
    disk.fail_next_of("write", Fault.EROFS)
    with pytest.raises(LogOffline):
        append(log)
    assert one.directories[0].failure is not None
