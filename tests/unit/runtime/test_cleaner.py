"""The cleaner's driver: its choice of logs, its checkpoint, deleted logs and disk errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.model.ids import TopicPartition, Uuid
from barnabas.runtime.cleaner import RETRY_MS, Cleaner, CleanerLimits
from barnabas.runtime.partition import Partition
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager
from tests.unit.storage.cleaning import compacted, headers, roll
from tests.unit.storage.kit import NOW, append, batch, read_all, small

CHECKPOINT = "/data/cleaner-offset-checkpoint"


class FakeTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    def __init__(self) -> None:
        self.elapsed_ms = 0
        self._timers: list[tuple[int, FakeTimer, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return NOW + self.elapsed_ms

    def monotonic_ms(self) -> int:
        return self.elapsed_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer()
        self._timers.append((deadline_ms, timer, callback))
        return timer

    def advance(self, by_ms: int) -> None:
        until_ms = self.elapsed_ms + by_ms
        while due := sorted((entry for entry in self._timers if entry[0] <= until_ms), key=lambda entry: entry[0]):
            self._timers.remove(due[0])
            self.elapsed_ms = max(self.elapsed_ms, due[0][0])
            if not due[0][1].cancelled:
                due[0][2]()
        self.elapsed_ms = until_ms


class Bench:
    """A broker's worth of logs; work runs at once, or step by step where ``held``."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.directory = LogDirectory(self.disk, "/data")
        self.logs = LogManager([self.directory])
        self.partitions: list[Partition] = []
        self.clock = FakeClock()
        self.reports: list[str] = []
        self.steps: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
        self.is_held = False
        self.cleaner = self.new_cleaner()

    def new_cleaner(self) -> Cleaner:
        return Cleaner(
            partitions=self.partitions,
            logs=self.logs,
            disk=self.disk,
            clock=self.clock,
            random=random.Random(1),
            limits=CleanerLimits(backoff_ms=1000),
            offload=self._offload,
            throttle=lambda _: None,
            report=lambda text, **fields: self.reports.append(f"{text} {fields}"),
        )

    def _offload(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        self.steps.append((work, then))
        if not self.is_held:
            self.step()

    def step(self) -> None:
        work, then = self.steps.pop(0)
        problem = None
        try:
            work()
        except Exception as raised:
            problem = raised
        then(problem)

    def add(self, name: str, count: int, settings: Any = None) -> Partition:
        settings = settings or compacted(min_cleanable_dirty_ratio=0.5)
        self.disk.make_directory("/data")
        log = self.logs.create(TopicPartition(name, 0), None, settings, now_ms=NOW)
        partition = Partition(log=log, topic_id=Uuid(b"1" * 16), node_id=1, disk=self.disk, clock=self.clock)
        partition.lead(0, 0, (1,), (1,))
        self.partitions.append(partition)
        self.fill(partition, count)
        return partition

    def fill(self, partition: Partition, count: int) -> None:
        for number in range(count):
            append(partition.log, batch(key=b"key", value=b"%d" % number))
        roll(partition.log)
        partition._advance(partition.log.log_end_offset)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_cleans_what_is_dirty_and_remembers_it(bench: Bench) -> None:
    partition = bench.add("a", 50)
    untouched = bench.add("b", 50, small())
    bench.cleaner.start()
    bench.clock.advance(999)
    assert len(read_all(partition.log)) == 50
    bench.clock.advance(1)
    assert [record.offset for record in read_all(partition.log)] == [49]
    assert len(read_all(untouched.log)) == 50
    assert bench.disk.read_file(CHECKPOINT) == b"0\n1\na 0 50\n"
    assert bench.cleaner.last is not None
    assert not partition.log.is_being_cleaned
    operations = bench.disk.operations
    bench.clock.advance(60_000)
    assert bench.disk.operations == operations, "a clean log is not touched"
    bench.cleaner = bench.new_cleaner()
    bench.cleaner.look()
    assert bench.disk.read_file(CHECKPOINT) == b"0\n1\na 0 50\n"


def test_waits_for_the_ratio_and_takes_the_dirtiest_first(bench: Bench) -> None:
    first, second = bench.add("a", 60), bench.add("b", 20)
    bench.cleaner.look()
    order: list[str] = []
    bench.fill(first, 1)
    bench.fill(second, 8)
    ended = bench.cleaner.ended
    bench.cleaner.ended = lambda log, *rest: (order.append(log.partition.topic), ended(log, *rest))[1]  # type: ignore[method-assign]
    bench.clock.advance(10_000)
    assert order == ["b"], "the first is dirty by less than half"
    bench.fill(first, 30)
    bench.fill(second, 3)
    bench.clock.advance(10_000)
    assert order[1] == "a"


def test_a_corrupt_log_is_left_alone(bench: Bench) -> None:
    partition, other = bench.add("a", 50), bench.add("b", 50)
    segment = partition.log.segments[0]
    segment.open_log().write([b"\x7f"], segment.size - 3)
    bench.cleaner.start()
    bench.clock.advance(300_000)
    assert len(bench.reports) == 1
    assert "left as it is" in bench.reports[0]
    assert len(read_all(other.log)) == 1
    assert not partition.log.is_being_cleaned


def test_a_full_disk_is_tried_again(bench: Bench) -> None:
    partition = bench.add("a", 50)
    bench.cleaner.start()
    bench.disk.fail_next(Fault.ENOSPC)
    bench.clock.advance(2000)
    assert len(bench.reports) == 1
    assert len(read_all(partition.log)) == 50
    bench.clock.advance(RETRY_MS + 2000)
    assert len(read_all(partition.log)) == 1


@pytest.mark.parametrize("step", range(6))
def test_a_log_deleted_at_any_step(bench: Bench, step: int) -> None:
    partition, other = bench.add("a", 50), bench.add("b", 30)
    bench.is_held = True
    bench.cleaner.look()
    for _ in range(step):
        bench.step()
    bench.partitions.remove(partition)
    bench.logs.delete(partition.name, b"u" * 16, NOW)
    bench.is_held = False
    fresh = bench.add("a", 7)
    while bench.steps:
        bench.step()
    bench.clock.advance(10_000)
    assert len(read_all(fresh.log)) == len(read_all(other.log)) == 1
    assert read_all(fresh.log)[0].offset == 6
    assert not [name for name in bench.disk.list("/data/a-0") if name.endswith((".swap", ".cleaned"))]
    bench.clock.advance(1)
    assert not bench.reports


@pytest.mark.parametrize("step", range(6))
def test_a_log_truncated_at_any_step(bench: Bench, step: int) -> None:
    partition = bench.add("a", 50)
    bench.is_held = True
    bench.cleaner.look()
    for _ in range(step):
        bench.step()
    partition.log.truncate_to(20)
    bench.is_held = False
    while bench.steps:
        bench.step()
    assert not [name for name in bench.disk.list("/data/a-0") if name.endswith((".swap", ".cleaned"))]
    assert partition.log.offline is None
    assert partition.log.log_end_offset <= 20
    assert not partition.log.is_being_cleaned
    headers(partition.log)


def test_stopping_ends_it(bench: Bench) -> None:
    partition = bench.add("a", 50)
    bench.is_held = True
    bench.cleaner.start()
    bench.clock.advance(1000)
    bench.step()
    bench.cleaner.stop()
    bench.step()
    assert not bench.steps
    bench.clock.advance(10_000)
    assert len(read_all(partition.log)) == 50
    assert not [name for name in bench.disk.list("/data/a-0") if name.endswith((".swap", ".cleaned"))]
