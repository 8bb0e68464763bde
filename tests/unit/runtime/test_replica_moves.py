"""Replicas move between data folders: while appends go on, and whatever step of it a crash comes upon."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition, Uuid
from barnabas.model.ports import DiskError
from barnabas.runtime import replica_moves
from barnabas.runtime.partition import Partition
from barnabas.runtime.replica_moves import ReplicaMoves
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.sim.disk import SimDisk
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager
from tests.unit.runtime.test_partition import refused
from tests.unit.storage.kit import NOW, PARTITION, batch, read_all, small

TOPIC_ID = Uuid(bytes(range(16)))
ONE, TWO = "/one", "/two"
DURABLE = {"flush_messages": 1}
IDLE_MS = 10_000
STEPS_PER_APPEND = 3
CRASH_AFTER, APPENDED = 12, 40
"""Records in the log when a move begins that a crash ends, and appended until after its end."""


class CarefulDisk(SimDisk):
    """Loses power at a chosen operation; a folder has its new name for sure only once its parent is synced."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.ends_at = 1 << 60
        self.is_dead = False
        self._renamings: list[tuple[str, str]] = []

    def fault(self, operation: str, path: str) -> Any:
        if self.operations + 1 >= self.ends_at and not self.is_dead:
            self.is_dead = True
            self.power_off()
        return super().fault(operation, path)

    def rename(self, old: str, new: str) -> None:
        is_folder = old in self._folders
        super().rename(old, new)
        if is_folder:
            self._renamings.append((old, new))

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self._renamings = [each for each in self._renamings if each[0].rpartition("/")[0] != path]

    def crash(self) -> None:
        for old, new in reversed(self._renamings):
            if self.random.randrange(0, 2):
                self._rename_folder(new, old)
        self._renamings.clear()
        self.ends_at, self.is_dead = 1 << 60, False
        super().crash()


class Place:
    """The storage of a broker with two folders and one partition."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.disk = CarefulDisk(seed)
        self.settings = small(**settings)
        self.sent = 0
        self.acknowledged: list[bytes] = []
        self.moved: list[str] = []
        self.leader_epoch = 0
        self.reports: list[str] = []
        self.start()

    def start(self) -> None:
        self.scheduler = Scheduler()
        self.clock = NodeClock(self.scheduler)
        self.logs = LogManager([LogDirectory(self.disk, path) for path in (ONE, TWO)])
        self.logs.load(lambda _partition, _topic_id: self.settings, now_ms=NOW)
        self.logs.resolve_doubles(lambda: self.disk.random.randbytes(16))
        log = self.logs.get(PARTITION) or self.logs.create(PARTITION, TOPIC_ID, self.settings, now_ms=NOW)
        self.partition = Partition(log=log, topic_id=TOPIC_ID, node_id=1, disk=self.disk, clock=self.clock)
        self.leader_epoch += 1
        self.partition.lead(self.leader_epoch, 0, (1,), (1,))
        self.moves = ReplicaMoves(
            partitions=self,  # type: ignore[arg-type]
            logs=self.logs,
            disk=self.disk,
            clock=self.clock,
            random=self.disk.random,
            on_moved=lambda partition: self.moved.append(partition.data_folder),
            report=lambda event, **_: self.reports.append(event),
        )

    # The local partitions

    def get(self, topic: str, number: int) -> Partition | None:
        return self.partition if TopicPartition(topic, number) == PARTITION else None

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {PARTITION: self.partition.high_watermark}

    # Working

    def append(self) -> None:
        self.sent += 1
        value = b"%08d" % self.sent + bytes(60)
        appended = self.partition.append(memoryview(bytearray(batch(value=value))), NOW)

        def durable(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.acknowledged.append(value)

        self.partition.when_durable(appended.last_offset, durable)

    def run(self, *, appending: int = 0) -> None:
        """Until nothing is left to do; ``appending`` records come between the steps, slower than they are copied."""
        steps = 0
        while self._step() or appending:
            steps += 1
            if appending and steps % STEPS_PER_APPEND == 0:
                appending -= 1
                self.append()

    def _step(self) -> bool:
        return self.disk.release_one() or self.scheduler.run_one(self.scheduler.now_ms + IDLE_MS)

    def values(self) -> list[bytes]:
        return [record.value or b"" for record in read_all(self.partition.log)]

    def names(self, path: str) -> list[str]:
        return [name for name in self.disk.list(path) if name.startswith("topic-0")]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few batches in each step, so that a move has many."""
    monkeypatch.setattr(replica_moves, "CHUNK_BYTES", 700)
    monkeypatch.setattr(replica_moves, "LAST_CHUNK_BYTES", 400)


def filled(count: int = 40, seed: int = 0, **settings: Any) -> Place:
    place = Place(seed, **settings)
    for _ in range(count):
        place.append()
    place.disk.is_slow = True
    return place


@pytest.mark.parametrize("settings", [{}, DURABLE], ids=["plain", "durable"])
def test_a_replica_moves_while_appends_go_on(settings: dict[str, Any]) -> None:
    place = filled(**settings)
    place.moves.move(PARTITION, TWO)
    ((partition, future),) = place.moves.futures()
    assert partition is place.partition
    assert future.log_end_offset < partition.log_end_offset
    place.run(appending=25)
    assert place.moved == [TWO]
    assert not list(place.moves.futures())
    assert place.partition.log is place.logs.get(PARTITION)
    assert place.values() == place.acknowledged
    assert len(place.acknowledged) == place.sent > 50
    assert place.names(TWO) == ["topic-0"]
    place.append()
    place.run()
    assert place.values() == place.acknowledged
    place.logs.sweep(place.clock.now_ms() + 60_000)
    assert place.names(ONE) == []


def test_a_moved_log_keeps_its_start_its_epochs_and_its_producers() -> None:
    place = filled()
    place.partition.lead(7, 0, (1,), (1,))
    produced = batch(producer_id=5, producer_epoch=0, base_sequence=0)
    first = place.partition.append(memoryview(bytearray(produced)), NOW)
    place.partition.lead(9, 0, (1,), (1,))
    place.partition.delete_records_before(13)
    epochs = place.partition.log.epochs.entries
    place.moves.move(PARTITION, TWO)
    place.run()
    log = place.partition.log
    assert place.moved == [TWO]
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (13, 41, 9)
    assert log.epochs.entries == epochs
    again = place.partition.append(memoryview(bytearray(produced)), NOW)
    assert (again.duplicate, again.first_offset) == (True, first.first_offset)


def test_a_move_there_and_back_and_a_clean_restart() -> None:
    place = filled()
    for target in (TWO, ONE, TWO):
        place.moves.move(PARTITION, target)
        place.run(appending=3)
    assert place.moved == [TWO, ONE, TWO]
    assert place.logs.close(high_watermarks=place.high_watermarks())
    place.start()
    assert place.logs.directories[1].was_clean
    assert place.partition.data_folder == TWO
    assert place.values() == place.acknowledged


def test_what_cannot_be_moved_is_refused() -> None:
    place = filled()
    assert refused(lambda: place.moves.move(PARTITION, "/three")) is ErrorCode.LOG_DIR_NOT_FOUND
    absent = TopicPartition("other", 0)
    assert refused(lambda: place.moves.move(absent, TWO)) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert place.logs.create(absent, TOPIC_ID, small(), now_ms=NOW).directory == f"{TWO}/other-0", "where it was wanted"
    long = TopicPartition("t" * 240, 0)
    assert refused(lambda: place.moves.move(long, TWO)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    place.logs.directories[1].take_offline("gone")
    assert refused(lambda: place.moves.move(PARTITION, TWO)) is ErrorCode.KAFKA_STORAGE_ERROR
    place.partition.log.fail("gone")
    assert refused(lambda: place.moves.move(PARTITION, ONE)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.moved == []


def test_a_move_to_where_it_is_ends_another_move() -> None:
    place = filled()
    place.moves.move(PARTITION, TWO)
    place.moves.move(PARTITION, TWO)
    assert len(list(place.moves.futures())) == 1
    place.moves.move(PARTITION, ONE)
    assert not list(place.moves.futures())
    place.run()
    place.logs.sweep(place.clock.now_ms())
    assert (place.moved, place.names(TWO)) == ([], [])
    assert place.values() == place.acknowledged


def test_a_truncated_log_is_copied_anew() -> None:
    place = filled()
    place.moves.move(PARTITION, TWO)
    for _ in range(20):
        place.scheduler.run_one(IDLE_MS)
    place.partition.follow(2, 8, (1, 2))
    place.partition.truncate_to(5)
    place.partition.lead(9, 0, (1,), (1,))
    place.append()
    place.run()
    assert place.moved == [TWO]
    assert [record.offset for record in read_all(place.partition.log)] == [*range(6)]
    assert place.values()[-1] == place.acknowledged[-1]


def test_retention_behind_the_copy() -> None:
    place = filled()
    place.moves.move(PARTITION, TWO)
    place.scheduler.run_one(IDLE_MS)
    place.partition.delete_records_before(30)
    place.run()
    assert place.moved == [TWO]
    assert [record.offset for record in read_all(place.partition.log)] == [*range(30, 40)]


def test_the_rate_is_limited() -> None:
    place = filled()
    place.moves.limit(1000)
    size = place.partition.size_bytes
    place.moves.move(PARTITION, TWO)
    place.run()
    assert place.moved == [TWO]
    assert place.clock.monotonic_ms() >= (size - 1000 - 700) * 0.9, "all but the first second's worth had to wait"


def test_a_full_target_leaves_the_replica_where_it_is() -> None:
    for number in range(1, _operations_of_a_move(appending=0)):
        place = filled(CRASH_AFTER)
        place.disk.fail(place.disk.operations + number)
        with contextlib.suppress(ApiError):
            place.moves.move(PARTITION, TWO)
        place.run()
        assert place.partition.log.offline is None, f"operation {number} failed"
        place.append()
        assert place.values() == place.acknowledged, f"operation {number} failed"


def _operations_of_a_move(appending: int = APPENDED, **settings: Any) -> int:
    place = filled(CRASH_AFTER, **settings)
    before = place.disk.operations
    _move(place, appending)
    assert place.moved == [TWO]
    return place.disk.operations - before


def _move(place: Place, appending: int) -> None:
    place.moves.move(PARTITION, TWO)
    place.run(appending=appending)


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_a_crash_at_any_step_loses_nothing(power: bool) -> None:
    """With a flush for each record all that was acknowledged survives a loss of power; without, a killed process."""
    settings = DURABLE if power else {}
    count = _operations_of_a_move(**settings)
    assert count > 100
    served = set()
    for number in range(1, count + 2):
        place = filled(CRASH_AFTER, seed=number, **settings)
        place.disk.ends_at = place.disk.operations + number
        try:
            _move(place, APPENDED)
        except (DiskError, ApiError):
            assert place.disk.is_dead
        known = len(place.acknowledged)
        if power:
            place.disk.crash()
        else:
            place.disk._renamings.clear()
            place.disk.kill()
            place.disk._dead, place.disk.is_dead, place.disk.ends_at = False, False, 1 << 60
        place.disk.is_slow = False
        place.start()
        place.disk.is_slow = True
        _check_restarted(place, known, f"operation {number} of {count}, seed {number}")
        served.add(place.partition.data_folder)
        place.moves.resume()
        place.run(appending=2)
        place.moves.move(PARTITION, TWO)
        place.run(appending=2)
        assert place.partition.data_folder == TWO
        assert set(place.acknowledged) <= set(place.values()), number
    assert served == {ONE, TWO}


def _check_restarted(place: Place, known: int, where: str) -> None:
    found = place.values()
    assert found[:known] == place.acknowledged[:known], where
    assert len(found) == len(set(found)), where
    served = [name for path in (ONE, TWO) for name in place.names(path) if not name.endswith("-stray")]
    assert served == ["topic-0"], f"{where}: {served}"


def test_an_interrupted_move_begins_anew() -> None:
    place = filled()
    place.moves.move(PARTITION, TWO)
    for _ in range(5):
        place.scheduler.run_one(IDLE_MS)
    assert place.names(TWO)[0].endswith("-future")
    place.disk.kill()
    place.start()
    assert place.names(TWO) == []
    assert place.partition.data_folder == ONE
    place.moves.resume()
    assert len(list(place.moves.futures())) == 1
    place.run()
    assert place.moved == [TWO]
    assert place.values() == place.acknowledged
