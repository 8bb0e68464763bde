"""Flush, roll, retention, DeleteRecords, compaction, checkpoints and topic deletion in every order.

Everything runs on one simulated disk under one seed: syncs and the cleaner's work finish when the schedule says so,
processes are killed and power is cut. Checked: no data folder goes offline, no acknowledged record is lost that
retention has not taken, compaction keeps the last value of each key, and nothing of a deleted topic reaches another
topic of the same name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition, Uuid
from barnabas.model.settings import LONG_MAX
from barnabas.model.topic_settings import TopicSettings
from barnabas.runtime.cleaner import Cleaner, CleanerLimits
from barnabas.runtime.partition import Partition
from barnabas.sim.disk import SimDisk
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager
from barnabas.wire.batch import iterate
from barnabas.wire.records import Record, decode_batch, encode_batch

NOW = 1_700_000_000_000
STEPS = 400
TOPICS = ("a", "b", "c")
KEYS = (b"k0", b"k1", b"k2", b"k3")


class Violation(AssertionError):
    """What must not happen, and the seed with which it does."""


class Topic:
    """A topic of the model: what was written to its partition, and what of that was acknowledged."""

    def __init__(self, name: str, topic_id: Uuid, settings: TopicSettings) -> None:
        self.name = TopicPartition(name, 0)
        self.topic_id = topic_id
        self.settings = settings
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.history: dict[int, list[tuple[bytes, bytes | None]]] = {}
        """All that was ever written at an offset: more than one where a cut of power took what was not synced."""
        self.acknowledged: set[int] = set()
        self.start_offset = 0
        """The highest log start offset that was seen: records below it may be gone."""
        self.partition: Partition | None = None
        self.leader_epoch = 0


class World:
    """One broker's storage. ``run`` takes seeded steps and checks the model after each crash and at the end."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.disk = SimDisk(seed)
        self.now_ms = NOW
        self._timers: list[tuple[int, Callable[[], None]]] = []
        self._work: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
        self._topics: dict[str, Topic] = {}
        self.trace: list[str] = []
        self._start()

    # The ports

    def monotonic_ms(self) -> int:
        return self.now_ms - NOW

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Any:
        entry = (deadline_ms, callback)
        self._timers.append(entry)
        world = self

        class Timer:
            def cancel(self) -> None:
                if entry in world._timers:
                    world._timers.remove(entry)

        return Timer()

    def _offload(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        self._work.append((work, then))

    def _directory_failed(self, _directory: LogDirectory, reason: str) -> None:
        raise Violation(self.told(f"the data folder went offline: {reason}"))

    def told(self, text: str) -> str:
        return f"seed {self.seed}: {text}\n" + "\n".join(self.trace[-25:])

    # Starting and dying

    def _start(self) -> None:
        self._timers.clear()
        self._work.clear()
        self.disk.is_slow = False
        directory = LogDirectory(self.disk, "/data", on_failure=self._directory_failed)
        self.logs = LogManager([directory])
        self.logs.load(lambda name, _id: self._settings_of(name), now_ms=self.now_ms)
        for log in list(self.logs):
            topic = self._topics.get(log.partition.topic)
            if topic is None or log.topic_id != topic.topic_id:
                self.logs.delete(log.partition, self.random.randbytes(16), self.now_ms)
        self._cleaner = Cleaner(
            partitions=_Live(self._topics),
            logs=self.logs,
            disk=self.disk,
            clock=_Clock(self),
            random=self.random,
            limits=CleanerLimits(backoff_ms=1),
            offload=self._offload,
            throttle=lambda _: None,
            report=lambda event, **fields: self.trace.append(f"{event} {fields}"),
        )
        for topic in self._topics.values():
            self._open(topic)
        self.disk.is_slow = True

    def _settings_of(self, name: TopicPartition) -> TopicSettings:
        topic = self._topics.get(name.topic)
        return topic.settings if topic is not None else TopicSettings()

    def _open(self, topic: Topic) -> None:
        log = self.logs.get(topic.name)
        if log is None:
            log = self.logs.create(topic.name, topic.topic_id, topic.settings, now_ms=self.now_ms)
        topic.partition = Partition(log=log, topic_id=topic.topic_id, node_id=1, disk=self.disk, clock=_Clock(self))
        topic.leader_epoch += 1
        topic.partition.lead(topic.leader_epoch, 0, (1,), (1,))

    def _die(self, kind: str) -> None:
        self._see_starts()
        self._cleaner.stop()
        self.trace.append(kind)
        durable_only = kind == "power cut"
        if kind == "clean stop":
            self._drain()
            self.disk.is_slow = False
            if not self.logs.close(broker_epoch=1, high_watermarks=self._high_watermarks()):
                raise Violation(self.told("a clean stop was not clean"))
            self._see_starts()
        elif durable_only:
            self.disk.crash()
        else:
            self.disk.kill()
        self._start()
        self.trace.append("started again")
        for topic in self._topics.values():
            if durable_only and topic.settings.flush_messages != 1:
                self._accept_loss(topic)
            self._check(topic)
            self._accept_unacknowledged(topic)

    # Steps

    def run(self, steps: int = STEPS) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (40, self._append),
            (25, self._sync_one),
            (15, self._work_one),
            (5, self._upkeep),
            (3, self._delete_records),
            (3, self._sweep),
            (3, lambda: self.logs.checkpoint(self._high_watermarks())),
            (6, self._pass_time),
            (4, self._cleaner_looks),
            (3, self._create),
            (2, self._delete),
            (1, lambda: self._die("power cut")),
            (1, lambda: self._die("kill -9")),
            (1, lambda: self._die("clean stop")),
        ]
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            self.random.choices(actions, weights)[0][1]()
        self._drain()
        self._see_starts()
        for topic in self._topics.values():
            self._check(topic)

    def _some_topic(self) -> Topic | None:
        return self.random.choice(list(self._topics.values())) if self._topics else None

    def _append(self) -> None:
        topic = self._some_topic()
        if topic is None or topic.partition is None:
            return
        key = self.random.choice(KEYS)
        value = None if self.random.random() < 0.2 else self.random.randbytes(self.random.randrange(1, 60))
        data = encode_batch([Record(-1, self.now_ms, key, value)])
        partition = topic.partition
        offset = partition.append(memoryview(bytearray(data)), self.now_ms).first_offset
        topic.written[offset] = (key, value)
        topic.history.setdefault(offset, []).append((key, value))
        self.trace.append(f"append {topic.name} {offset}")

        def committed(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and topic.partition is partition:
                topic.acknowledged.add(offset)

        partition.when_committed(offset, committed)

    def _sync_one(self) -> None:
        self.disk.release_one()

    def _work_one(self) -> None:
        if not self._work:
            return
        work, then = self._work.pop(0)
        problem: Exception | None = None
        try:
            work()
        except Violation:
            raise
        except Exception as raised:
            problem = raised
        self.trace.append(f"cleaner step {problem or ''}")
        then(problem)

    def _upkeep(self) -> None:
        for topic in self._topics.values():
            if topic.partition is not None:
                topic.partition.upkeep(self.now_ms)
        self.trace.append("retention")

    def _delete_records(self) -> None:
        topic = self._some_topic()
        if topic is None or topic.partition is None:
            return
        high_watermark = topic.partition.high_watermark
        start = topic.partition.delete_records_before(self.random.randrange(0, high_watermark + 1))
        self.trace.append(f"DeleteRecords {topic.name} {start}")

    def _sweep(self) -> None:
        self.logs.sweep(self.now_ms)

    def _pass_time(self) -> None:
        self.now_ms += self.random.randrange(1, 800)
        due = [entry for entry in self._timers if entry[0] <= self.monotonic_ms()]
        for entry in due:
            if entry in self._timers:
                self._timers.remove(entry)
                entry[1]()

    def _cleaner_looks(self) -> None:
        self._cleaner.look()

    def _create(self) -> None:
        absent = [name for name in TOPICS if name not in self._topics]
        if not absent:
            return
        settings = TopicSettings(
            cleanup_policy=self.random.choice([("delete",), ("compact",), ("compact", "delete")]),
            segment_bytes=self.random.choice([200, 500, 1000]),
            segment_ms=self.random.choice([50, 10_000]),
            index_interval_bytes=self.random.choice([1, 100, 4096]),
            retention_bytes=self.random.choice([-1, 300, 2000]),
            retention_ms=self.random.choice([-1, 500]),
            file_delete_delay_ms=self.random.choice([0, 0, 1000]),
            flush_messages=self.random.choice([1, 3, LONG_MAX]),
            preallocate=self.random.random() < 0.3,
            delete_retention_ms=self.random.choice([0, 1000]),
            min_cleanable_dirty_ratio=self.random.choice([0.01, 0.5]),
        )
        name = self.random.choice(absent)
        topic = self._topics[name] = Topic(name, Uuid(self.random.randbytes(16)), settings)
        self._open(topic)
        self.trace.append(f"create {name}")

    def _delete(self) -> None:
        topic = self._some_topic()
        if topic is None or topic.partition is None:
            return
        del self._topics[topic.name.topic]
        topic.partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.logs.delete(topic.name, self.random.randbytes(16), self.now_ms)
        self.logs.checkpoint(self._high_watermarks())
        self.trace.append(f"delete {topic.name}")
        if self.random.random() < 0.7:
            self._create()

    def _drain(self) -> None:
        while self.disk.release_one():
            pass

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        live = (topic.partition for topic in self._topics.values())
        return {partition.name: partition.high_watermark for partition in live if partition is not None}

    # Checking

    def _see_starts(self) -> None:
        for topic in self._topics.values():
            if topic.partition is not None:
                topic.start_offset = max(topic.start_offset, topic.partition.log.log_start_offset)

    def _check(self, topic: Topic) -> None:
        assert topic.partition is not None
        found = _read(topic.partition.log)
        for offset, record in found.items():
            if record not in topic.history.get(offset, ()):
                raise Violation(self.told(f"{topic.name} has a record at {offset} that was not written there"))
        expected = {offset for offset in topic.acknowledged if offset >= topic.start_offset}
        compacts = topic.settings.compacts
        lost = _lost_keys(topic, expected, found) if compacts else sorted(expected - found.keys())
        if lost:
            raise Violation(self.told(f"{topic.name} has lost {lost}; it holds {sorted(found)[:50]}"))

    def _accept_loss(self, topic: Topic) -> None:
        """A cut of power may take any part of what was not synced."""
        assert topic.partition is not None
        topic.acknowledged.clear()
        topic.start_offset = topic.partition.log.log_start_offset

    def _accept_unacknowledged(self, topic: Topic) -> None:
        """What was not acknowledged may be gone, and its offsets are given again; what is there stays."""
        assert topic.partition is not None
        log = topic.partition.log
        kept = {*_read(log), *(topic.acknowledged if topic.settings.compacts else ())}
        topic.written = {offset: record for offset, record in topic.written.items() if offset in kept}
        topic.acknowledged = {offset for offset in topic.written if offset < topic.partition.high_watermark}
        topic.start_offset = min(topic.start_offset, log.log_end_offset)


def _lost_keys(topic: Topic, expected: set[int], found: dict[int, tuple[bytes, bytes | None]]) -> list[str]:
    """Keys whose last value is not the one that was written last."""
    lost = []
    for key in KEYS:
        offsets = [offset for offset in topic.written if topic.written[offset][0] == key]
        last = max((offset for offset in offsets if offset in expected), default=None)
        if last is None or max(offsets) != last:
            continue  # all deleted, or an unacknowledged record is the last: either value may be there
        held = max((offset for offset in found if found[offset][0] == key), default=None)
        is_removed = topic.written[last][1] is None and held is None
        if held != last and not is_removed:
            lost.append(f"{key!r} at {last}, found at {held}")
    return lost


def _read(log: Log) -> dict[int, tuple[bytes, bytes | None]]:
    found: dict[int, tuple[bytes, bytes | None]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20)
        if result.records is None:
            break
        data = result.records.read()
        for position, _header in iterate(data):
            for record in decode_batch(data, position):
                if record.offset >= offset:
                    found[record.offset] = (bytes(record.key or b""), record.value)
        offset = result.next_offset
    return found


class _Live:
    """The partitions that the cleaner looks at."""

    def __init__(self, topics: dict[str, Topic]) -> None:
        self._topics = topics

    def __iter__(self) -> Any:
        return iter([topic.partition for topic in self._topics.values() if topic.partition is not None])


class _Clock:
    def __init__(self, world: World) -> None:
        self._world = world
        self.monotonic_ms = world.monotonic_ms
        self.call_at = world.call_at

    def now_ms(self) -> int:
        return self._world.now_ms


def run_seed(seed: int, steps: int = STEPS) -> None:
    """Raises Violation, which names the seed."""
    world = World(seed)
    try:
        world.run(steps)
    except Violation:
        raise
    except Exception as problem:
        raise Violation(world.told(f"{type(problem).__name__}: {problem}")) from problem
