"""What is measured on Spark, and the data for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyarrow import parquet

from bench.spark_session import Driver
from bench.systems import System

FILES = 4
"""In the folder that is written to a topic: more than there are cores."""
BATCH_BYTES = 65_536
ROWS_AT_A_TIME = 50_000
WAIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """One line of the table. ``goal`` is the rows/s to reach as a ratio to the connector's."""

    kind: str
    streams: bool
    size: int
    goal: float

    @property
    def title(self) -> str:
        how = "AvailableNow" if self.streams else "batch"
        what = {"noop": "topic to noop", "parquet": "topic to Parquet", "write": "Parquet to topic"}[self.kind]
        return f"{what}, {self.size:,} B, {how}"


@dataclass(frozen=True)
class Cost:
    rows_per_s: float
    cpu_s_per_million: float
    """Of the broker."""


def cases(kinds: Iterable[str], sizes: Iterable[int]) -> Iterator[Case]:
    for kind in kinds:
        for size in sizes:
            for streams in (False, True):
                yield Case(kind, streams, size, goal_of(kind, size))


def goal_of(kind: str, size: int) -> float:
    if kind == "noop":
        return 2.5 if size <= 100 else 1.5
    return 1.3 if kind == "parquet" else 1.0


class Topics:
    """A topic and a folder of the same rows for each size, and topics to write to."""

    def __init__(self, system: System, folder: Path, rows_of_100: int, partitions: int) -> None:
        self.servers = system.servers
        self.folder = folder
        self.partitions = partitions
        self._rows_of_100 = rows_of_100
        self._admin = AdminClient({"bootstrap.servers": self.servers})
        self._numbers = count()

    def rows(self, size: int) -> int:
        return self._rows_of_100 if size <= 100 else self._rows_of_100 // 4

    def files(self, size: int) -> Path:
        return self.folder / f"values-{size}"

    def source(self, size: int) -> str:
        return f"values-{size}"

    def fill(self, size: int) -> None:
        self._fill_files(size)
        self._create(self.source(size))
        producer = Producer({"bootstrap.servers": self.servers, "batch.size": BATCH_BYTES, "linger.ms": 20})
        for number in range(self.rows(size)):
            while True:
                try:
                    producer.produce(self.source(size), _value(number, size), str(number), number % self.partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(WAIT_S)
        self.check(self.source(size), self.rows(size))

    def _fill_files(self, size: int) -> None:
        folder = self.files(size)
        folder.mkdir()
        rows = self.rows(size)
        for file in range(FILES):
            with parquet.ParquetWriter(folder / f"{file}.parquet", _SCHEMA) as writer:
                for start in range(file, rows, FILES * ROWS_AT_A_TIME):
                    numbers = range(start, min(start + FILES * ROWS_AT_A_TIME, rows), FILES)
                    writer.write_batch(_rows(numbers, size))

    def new_target(self) -> str:
        name = f"written-{next(self._numbers)}"
        self._create(name)
        return name

    def remove(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result(WAIT_S)

    def check(self, topic: str, rows: int) -> None:
        """Nothing less and nothing twice, or the figure means nothing."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "bench"})
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)[1]
            for partition in range(self.partitions)
        ]
        consumer.close()
        if sum(ends) != rows:
            raise RuntimeError(f"{topic} has {sum(ends)} records, not {rows}")

    def _create(self, topic: str) -> None:
        for future in self._admin.create_topics([NewTopic(topic, self.partitions)]).values():
            future.result(WAIT_S)


_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])


def _rows(numbers: Iterable[int], size: int) -> pa.RecordBatch:
    listed = list(numbers)
    keys = pa.array([str(number).encode() for number in listed], pa.binary())
    return pa.record_batch([keys, pa.array([_value(number, size) for number in listed], pa.binary())], schema=_SCHEMA)


def _value(number: int, size: int) -> bytes:
    """Like text: no two are alike, and they compress by half or so."""
    word = f"{number * 2_654_435_761 & 0xFFFFFFFFFF:x}-{number} ".encode()
    return (word * (size // len(word) + 1))[:size]


def run(system: System, driver: Driver, case: Case, topics: Topics) -> Cost:
    """One job. The broker's CPU is that from before it to after it."""
    rows = topics.rows(case.size)
    topic = topics.new_target() if case.kind == "write" else topics.source(case.size)
    job = {
        "kind": case.kind,
        "streams": case.streams,
        "topic": topic,
        "servers": topics.servers,
        "files": str(topics.files(case.size)),
        "folder": str(topics.folder),
    }
    cpu_s = system.cpu_s()
    answer = driver.do(job)
    cpu_s = system.cpu_s() - cpu_s
    if answer["rows"] not in (-1, rows):
        raise RuntimeError(f"{case.title}: {answer['rows']} rows came out, not {rows}")
    if case.kind == "write":
        topics.check(topic, rows)
        topics.remove(topic)
    return Cost(rows / answer["seconds"], cpu_s / rows * 1e6)
