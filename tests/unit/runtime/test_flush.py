"""Flushes run off the loop; what the loop does meanwhile is neither lost nor marked as synced."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import Uuid
from barnabas.model.settings import LONG_MAX
from barnabas.runtime.flush import RETRY_MS
from barnabas.runtime.partition import Partition
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage.log import Log
from tests.unit.storage.kit import DIRECTORY, NOW, batch, open_log, small, values

EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"


class TimerClock:
    """Time stands still; timers are kept, to be run by hand."""

    def __init__(self) -> None:
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return NOW

    def monotonic_ms(self) -> int:
        return 0

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Any:
        self.timers.append((deadline_ms, callback))


class Life:
    """A durable partition on a slow disk; what it acknowledged is noted."""

    def __init__(self, disk: SimDisk, *, recovery_point: int = 0, leader_epoch: int = 0, **settings: Any) -> None:
        self.disk = disk
        self.clock = TimerClock()
        self.log: Log = open_log(disk, small(**{"flush_messages": 1, **settings}), recovery_point=recovery_point)
        self.partition = Partition(log=self.log, topic_id=Uuid(b"1" * 16), node_id=1, disk=disk, clock=self.clock)
        self.partition.lead(leader_epoch, 0, (1,), (1,))
        self.outcomes: list[tuple[bytes, ErrorCode]] = []
        disk.is_slow = True

    def append(self, value: bytes = b"value") -> None:
        appended = self.partition.append(memoryview(bytearray(batch(value=value))), NOW)
        self.partition.when_committed(appended.last_offset, lambda code: self.outcomes.append((value, code)))

    @property
    def acknowledged(self) -> list[bytes]:
        return [value for value, code in self.outcomes if code is ErrorCode.NONE]

    def release_all(self) -> None:
        while self.disk._waiting:
            self.disk.release()


def syncs(disk: SimDisk) -> list[str]:
    return [path for _, operation, path in disk.log if operation in ("sync", "write_file")]


def test_nothing_is_synced_on_the_loop() -> None:
    life = Life(SimDisk(), segment_bytes=300)
    life.log.parent_unsynced = True
    for _ in range(8):
        life.append(b"v" * 50)
    assert len(life.log.segments) > 2
    assert [path for path in syncs(life.disk) if not path.endswith(".snapshot")] == []
    assert life.outcomes == []
    life.release_all()
    assert len(life.acknowledged) == 8
    assert {EPOCHS + ".tmp", DIRECTORY, "/data"} <= set(syncs(life.disk))
    assert not life.log.parent_unsynced
    assert life.log.epochs.is_stored
    assert not any(segment.unsynced_entry for segment in life.log.segments)


def test_names_are_synced_after_what_they_name() -> None:
    life = Life(SimDisk())
    life.append()
    life.release_all()
    order = [(operation, path) for _, operation, path in life.disk.log if operation in ("sync", "rename")]
    assert order == [
        ("sync", f"{DIRECTORY}/{0:020d}.log"),
        ("sync", EPOCHS + ".tmp"),
        ("rename", EPOCHS + ".tmp"),
        ("sync", DIRECTORY),
        ("sync", "/data"),
    ]


def test_flags_are_cleared_when_the_work_is_done_and_not_before() -> None:
    life = Life(SimDisk())
    life.append()
    segment = life.log.active
    for _ in range(4):
        assert life.log.parent_unsynced
        assert segment.unsynced_entry
        assert not life.log.epochs.is_stored
        life.disk.release()
    assert not life.log.parent_unsynced
    assert not segment.unsynced_entry
    assert life.log.epochs.is_stored


def test_what_the_loop_does_meanwhile_is_left_to_the_next_flush() -> None:
    life = Life(SimDisk(), segment_bytes=300)
    life.append()
    first = life.log.active
    life.partition.lead(1, 0, (1,), (1,))
    for _ in range(3):
        life.append(b"v" * 50)
    assert first is not life.log.active
    while not life.outcomes:
        life.disk.release()
    assert len(life.acknowledged) == 1
    assert first.unsynced_entry, "it has been sealed since: its indexes are new names"
    assert not life.log.epochs.is_stored, "another epoch has begun since"
    life.release_all()
    assert len(life.acknowledged) == 4
    assert not first.unsynced_entry
    assert life.log.epochs.is_stored


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.EIO])
def test_no_room_for_the_epochs_fails_this_flush_only(fault: Fault) -> None:
    life = Life(SimDisk())
    life.append()
    life.release_all()
    life.partition.lead(1, 0, (1,), (1,))
    # The batch is written, the file for the epochs created and emptied; then there is no room for them.
    life.disk.fail(life.disk.operations + 4, fault)
    life.append(b"refused")
    assert life.outcomes[1:] == []
    deadline_ms, retry = life.clock.timers.pop()
    assert deadline_ms == RETRY_MS
    life.disk.fail_next(fault)
    retry()
    assert life.outcomes[1:] == [(b"refused", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert life.log.offline is None
    assert life.partition.high_watermark == 1
    _, retry = life.clock.timers.pop()
    retry()
    life.release_all()
    assert life.partition.high_watermark == 2
    assert life.log.epochs.is_stored


def test_a_sync_of_names_that_fails_ends_the_log() -> None:
    life = Life(SimDisk())
    life.append()
    life.disk.release()
    life.disk.release()
    life.disk.fail_next()
    life.release_all()
    assert life.outcomes == [(b"value", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert life.log.offline is not None


@pytest.mark.parametrize("releases", range(5))
def test_a_log_that_is_closed_meanwhile_is_left_alone(releases: int) -> None:
    life = Life(SimDisk())
    life.append()
    for _ in range(releases):
        life.disk.release()
    life.log.close()
    done = len(life.disk.log)
    life.release_all()
    assert [operation for _, operation, _ in life.disk.log[done:]] in ([], ["sync"])
    assert open_log(life.disk, clean=True).epochs.entries == [(0, 0)]


@pytest.mark.parametrize("releases", range(5))
def test_a_log_that_is_deleted_meanwhile_leaves_nothing_in_its_successor(releases: int) -> None:
    life = Life(SimDisk())
    life.append()
    for _ in range(releases):
        life.disk.release()
    life.log.close(clean=False)
    life.disk.rename(DIRECTORY, DIRECTORY + "-delete")
    life.log.renamed(DIRECTORY + "-delete")
    life.disk.make_directory(DIRECTORY)
    life.release_all()
    assert life.disk.list(DIRECTORY) == []


@pytest.mark.parametrize("seed", range(200))
def test_a_power_cut_in_the_midst_takes_nothing_that_was_acknowledged(seed: int) -> None:
    generator = random.Random(seed)
    disk = SimDisk(seed)
    point = 0
    expected: list[bytes] = []
    for leader_epoch in range(3):
        life = Life(disk, recovery_point=point, leader_epoch=leader_epoch * 10, segment_bytes=400)
        for number in range(generator.randrange(1, 30)):
            life.append(b"%d-%d" % (leader_epoch, number) * generator.randrange(1, 9))
            if generator.random() < 0.1:
                life.partition.lead(life.log.latest_epoch + 1, 0, (1,), (1,))
            for _ in range(generator.randrange(0, 5)):
                disk.release()
        point = life.log.flushed_offset
        entries = life.log.epochs.entries
        disk.crash()
        found = open_log(disk, recovery_point=point)
        kept = [value for value in values(found) if value is not None]
        assert kept[: len(expected) + len(life.acknowledged)] == expected + life.acknowledged
        assert found.epochs.entries == [entry for entry in entries if entry[1] < found.log_end_offset]
        expected = kept


@pytest.mark.parametrize("by", ["retention", "DeleteRecords"])
def test_a_log_is_emptied_without_waiting_for_the_disk(by: str) -> None:
    life = Life(SimDisk(), flush_messages=LONG_MAX, retention_ms=1)
    life.log.parent_unsynced = True
    life.append()
    life.append()
    if by == "retention":
        life.partition.upkeep(NOW * 2)
    else:
        life.partition.delete_records_before(2)
    assert (life.log.log_start_offset, life.log.log_end_offset) == (2, 2)
    assert [path for path in syncs(life.disk) if not path.endswith(".snapshot")] == []
    assert life.log.size_bytes > 0, "the last file goes when the name of the empty one is safe"
    life.partition.upkeep(NOW * 2)
    life.release_all()
    assert {DIRECTORY, "/data"} <= set(syncs(life.disk))
    assert life.log.size_bytes == 0
    life.append(b"after")
    life.disk.crash()
    again = open_log(life.disk)
    assert again.log_end_offset in (2, 3)


def test_a_log_whose_names_cannot_be_synced_ends() -> None:
    life = Life(SimDisk(), flush_messages=LONG_MAX)
    life.append()
    life.partition.delete_records_before(1)
    life.disk.fail_next()
    life.disk.release()
    assert life.log.offline is not None
    assert life.partition.leader is None


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_a_file_that_retention_removed_is_not_a_failed_sync(delay_ms: int) -> None:
    """Closed segments wait for their sync while retention deletes them and removes the files."""
    life = Life(
        SimDisk(), flush_messages=LONG_MAX, segment_bytes=300, retention_bytes=300, file_delete_delay_ms=delay_ms
    )
    for _ in range(20):
        life.append(b"v" * 50)
    assert len(life.log.segments) > 5
    life.disk.release_one()
    life.partition.upkeep(NOW)
    life.partition.upkeep(NOW + 1000)
    assert len(life.log.segments) < 5
    assert not any(".deleted" in name for name in life.disk.list(DIRECTORY))
    life.release_all()
    assert life.log.offline is None
    assert life.log.flushed_offset >= life.log.bases[-1]


def test_removed_files_hold_the_recovery_point_back_until_their_removal_is_durable() -> None:
    """Or a power cut could bring them back, half written, before the recovery point, where nothing is checked."""
    for seed in range(30):
        disk = SimDisk(seed)
        life = Life(disk, flush_messages=LONG_MAX, segment_bytes=300, retention_bytes=600, file_delete_delay_ms=0)
        for _ in range(20):
            life.append(b"v" * 50)
        for _ in range(disk.random.randrange(0, 8)):
            disk.release_one()
        life.partition.upkeep(NOW)
        life.partition.upkeep(NOW)
        for _ in range(disk.random.randrange(0, 40)):
            disk.release_one()
        point = life.log.flushed_offset
        disk.crash()
        found = open_log(disk, recovery_point=point)
        values(found)  # every segment that is left can be read
        assert found.log_end_offset >= point


def test_what_recovery_found_is_acknowledged_again_only_when_it_is_synced() -> None:
    """A process that is killed between write and sync, and then a cut of power."""
    data = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    first = Life(SimDisk())
    first.partition.append(memoryview(bytearray(data)), NOW)
    disk = first.disk
    disk._waiting.clear()  # kill -9: the write is in the page cache, the sync never happens
    second = Life(disk, leader_epoch=1)
    repeated = second.partition.append(memoryview(bytearray(data)), NOW)
    assert repeated.duplicate
    second.partition.when_committed(repeated.last_offset, lambda code: second.outcomes.append((b"", code)))
    assert second.outcomes == []
    assert second.partition.high_watermark == 0
    assert second.partition.read(1, 1000, committed_only=False, minimum_one=True).records is None, "not out of range"
    second.release_all()
    assert second.outcomes == [(b"", ErrorCode.NONE)]
    disk.crash()
    assert len(values(open_log(disk))) == 1
