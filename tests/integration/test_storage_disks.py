"""The real disks: the operating system's and the one in memory, with and without what only Linux has."""

from __future__ import annotations

import os
import threading

import pytest

from barnabas.app.memory_disk import MemoryDisk
from barnabas.app.os_disk import OsDisk
from barnabas.model.ids import TopicPartition, Uuid
from barnabas.model.ports import DiskError, FileMissing
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager
from tests.unit.storage.kit import NOW, append, batch, offsets, read_all, small


@pytest.fixture(params=["os", "os-fallbacks", "memory", "memory-fallbacks"])
def disk(request):
    fallbacks = request.param.endswith("fallbacks")
    made = (
        OsDisk(fallbacks=fallbacks, max_open_files=5)
        if request.param.startswith("os")
        else MemoryDisk(fallbacks=fallbacks)
    )
    yield made
    made.close()


@pytest.fixture
def root(disk, tmp_path):
    path = str(tmp_path / "data")
    disk.make_directory(path)
    return path


def test_files(disk, root):
    with pytest.raises(FileMissing):
        disk.open(f"{root}/a")
    file = disk.open(f"{root}/a", create=True)
    file.write([b"one", memoryview(b"two")], 0)
    file.write([b"three"], 6)
    assert (file.size(), file.read(100, 3)) == (11, b"twothree")
    assert file.read(5, 50) == b""
    file.allocate(1 << 16)
    assert file.size() == 11
    file.truncate(4)
    assert file.read(100, 0) == b"onet"
    file.write([b"x"] * 2000, 4)
    assert file.size() == 2004
    file.sync()
    assert file.is_cached(4, 0)
    file.start_writeback(0, 4)
    file.close()
    assert file.read(3, 0) == b"one"


def test_large_files_and_descriptors(disk, root):
    file = disk.open(f"{root}/large", create=True)
    for number in range(10):
        file.write([bytes([number]) * 100_000], number * 100_000)
    assert file.size() == 1_000_000
    assert file.read(2, 99_999) == b"\x00\x01"
    try:
        descriptor = file.fileno()
    except DiskError:
        assert isinstance(disk, MemoryDisk)
        return
    assert os.pread(descriptor, 2, 199_999) == b"\x01\x02"
    file.release_fileno()


def test_names(disk, root):
    disk.write_file(f"{root}/b", b"content")
    disk.write_file(f"{root}/b", b"changed", sync=False)
    assert disk.read_file(f"{root}/b") == b"changed"
    disk.make_directory(f"{root}/deep/er")
    disk.write_file(f"{root}/deep/er/c", b"c")
    assert disk.list(root) == ["b", "deep"]
    disk.rename(f"{root}/b", f"{root}/z")
    disk.rename(f"{root}/deep", f"{root}/moved")
    assert disk.read_file(f"{root}/moved/er/c") == b"c"
    assert not disk.exists(f"{root}/deep/er")
    assert disk.exists(f"{root}/moved")
    disk.remove(f"{root}/z")
    disk.remove(f"{root}/z")
    disk.remove_tree(f"{root}/moved")
    disk.remove_tree(f"{root}/moved")
    assert disk.list(root) == []
    disk.sync_directory(root)
    for action in (disk.read_file, disk.list, disk.sync_directory):
        with pytest.raises(FileMissing):
            action(f"{root}/missing")
    with pytest.raises(FileMissing):
        disk.rename(f"{root}/missing", f"{root}/other")
    total, usable = disk.free_bytes(root)
    assert 0 < usable <= total


def test_an_open_file_outlives_its_name(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write([b"abc"], 0)
    disk.rename(f"{root}/a", f"{root}/b")
    assert file.read(3, 0) == b"abc"
    file.close()
    assert file.read(3, 0) == b"abc"
    file.close()
    disk.rename(f"{root}/b", f"{root}/c")
    assert file.read(3, 0) == b"abc"


def test_a_reader_keeps_its_range_while_the_segment_is_deleted(disk, root):
    log = Log.open(disk, f"{root}/t-0", TopicPartition("t", 0), small(retention_bytes=0), now_ms=NOW)
    for _ in range(30):
        append(log)
    records = log.read(0, 500).records
    assert records is not None
    assert log.delete_old_segments(NOW, log.log_end_offset) > 1
    assert len(records.read()) == records.size


def test_locks(disk, root):
    assert disk.lock(f"{root}/.lock")
    assert not disk.lock(f"{root}/.lock")
    disk.unlock(f"{root}/.lock")
    assert disk.lock(f"{root}/.lock")


def test_a_log_lives_on_it(disk, root):
    manager = LogManager([LogDirectory(disk, root)])
    manager.load(lambda *_: small(), now_ms=NOW)
    partitions = [TopicPartition("t", number) for number in range(12)]
    for partition in partitions:
        manager.create(partition, Uuid(bytes(15) + b"x"), small(), now_ms=NOW)
    for number in range(30):
        for partition in partitions:
            append(manager.get(partition), batch(value=b"%d" % number))
    assert manager.close(broker_epoch=1)
    manager = LogManager([LogDirectory(disk, root)])
    manager.load(lambda *_: small(preallocate=True), now_ms=NOW)
    for log in manager:
        assert offsets(log) == list(range(30))
        append(log, batch(value=b"x" * 800))
        assert len(read_all(log, 25)) == 6
    if isinstance(disk, OsDisk):
        assert disk.open_file_count <= 5
    assert manager.close()


def test_syncs_are_coalesced_and_answered_on_the_loop(tmp_path):
    posted: list = []
    arrived = threading.Event()

    def post(callback) -> None:
        posted.append(callback)
        arrived.set()

    disk = OsDisk(post)
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write([b"x"], 0)
    answers: list = []
    for _ in range(10):
        disk.sync(file, answers.append)
    assert arrived.wait(60)
    disk.sync_thread.close()
    assert answers == []
    assert len(posted) <= 3
    for callback in posted:
        callback()
    assert answers == [None] * 10
    disk.close()


def test_a_folder_that_is_replaced_while_its_sync_waits_is_not_taken_for_the_other(tmp_path):
    syncing, go_on = threading.Event(), threading.Event()
    disk = OsDisk()
    for name in ("first", "folder"):
        disk.make_directory(str(tmp_path / name))
    answers: list = []

    def answer(problem) -> None:
        answers.append(problem)
        syncing.set()
        assert go_on.wait(60)

    disk.sync_names(str(tmp_path / "first"), answer)
    assert syncing.wait(60)
    for _ in range(3):
        disk.sync_names(str(tmp_path / "folder"), answer)
    disk.rename(str(tmp_path / "folder"), str(tmp_path / "renamed"))
    disk.make_directory(str(tmp_path / "folder"))
    disk.sync_names(str(tmp_path / "folder"), answer)
    assert len(disk.sync_thread._waiting) == 2
    go_on.set()
    disk.sync_names(str(tmp_path / "missing"), answer)
    disk.close()
    assert [type(problem) for problem in answers].count(FileMissing) == 1
    assert answers.count(None) == 5


def test_pinned_descriptors_are_never_closed(tmp_path):
    disk = OsDisk(max_open_files=2)
    files = [disk.open(str(tmp_path / str(number)), create=True) for number in range(6)]
    descriptors = {}
    for number, file in enumerate(files[:3]):
        file.write([b"%d" % number], 0)
        descriptors[number] = file.fileno()
    for file in files[3:]:
        file.write([b"other"], 0)
    for number, descriptor in descriptors.items():
        assert os.pread(descriptor, 10, 0) == b"%d" % number
        files[number].release_fileno()
    for file in files:
        file.read(1, 0)
    assert disk.open_file_count <= 4
    disk.close()


def test_errors_are_disk_errors(tmp_path):
    disk = OsDisk()
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write([b"x"], 0)
    file.close()
    os.unlink(tmp_path / "a")
    for action in (lambda: file.read(1, 0), lambda: file.write([b"y"], 1), file.size, file.sync, file.fileno):
        with pytest.raises(FileMissing):
            action()
    with pytest.raises(DiskError):
        disk.open(str(tmp_path), create=True)
    with pytest.raises(DiskError):
        disk.make_directory("/proc/none")
    disk.close()
