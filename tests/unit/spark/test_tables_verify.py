"""Gaps explained by a real broker, and the completeness check: what is whole passes, and every fault is named."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import ResourceType, alter_configs, create_topic, delete_records, delete_topics
from barnabas.client.wire.data import Fetched, produce
from barnabas.model.ids import TopicPartition
from barnabas.spark import verify as verifying
from barnabas.spark.tables import gaps, runs
from barnabas.spark.tables.base import Table
from barnabas.spark.tables.errors import TableError
from barnabas.spark.tables.gaps import Topics, classify, explain
from barnabas.spark.tables.state import Gap
from barnabas.spark.tables.topic import Window, window_at, windows
from barnabas.spark.verify import Progress, verify
from barnabas.testing import EmbeddedBroker
from barnabas.wire import records
from barnabas.wire.compression import Codec
from tests.integration.cleaning import is_clean
from tests.reliability.raw import wait_until
from tests.unit.spark.tables_kit import FORMATS, commit, made, offsets_in

NewTopic = Callable[[], str]
TIME_MS = int(time.time() * 1000)
"""Old records would be taken by retention while they are looked at."""


@pytest.fixture
def client(shared_broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(shared_broker.bootstrap_servers) as found:
        yield found


@pytest.fixture
def topic(client: Client, new_topic: NewTopic) -> str:
    name = new_topic()
    create_topic(client, name, partitions=2)
    return name


@pytest.fixture
def topics(shared_broker: EmbeddedBroker) -> Iterator[Topics]:
    found = Topics({"bootstrap.servers": shared_broker.bootstrap_servers})
    yield found
    found.close()


def fill(
    client: Client, topic: str, count: int, *, partition: int = 0, size: int = 100, codec: Codec = Codec.NONE
) -> None:
    """Batches of ``size`` records."""
    for first in range(0, count, size):
        found = [
            records.Record(offset=index, timestamp=TIME_MS + first + index, key=b"k", value=b"v" * (index % 50))
            for index in range(min(size, count - first))
        ]
        produce(client, {TopicPartition(topic, partition): records.encode_batch(found, codec=codec)})


def read(client: Client, topic: str, start: int, end: int, partition: int = 0) -> pa.RecordBatch:
    """As a source reads it."""
    found = [window.records for window in windows(client, TopicPartition(topic, partition), start, end)]
    (batch,) = pa.Table.from_batches([item for item in found if item is not None]).combine_chunks().to_batches()
    return batch


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    with made(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[Table]:
    with made("iceberg", tmp_path) as found:
        yield found


@pytest.fixture
def delta(tmp_path: Path) -> Iterator[Table]:
    with made("delta", tmp_path) as found:
        yield found


def archive(table: Table, client: Client, topic: str, topics: Topics, ends: list[int], partition: int = 0) -> None:
    start = 0
    for number, end in enumerate(ends):
        name = f"q{partition}"
        commit(table, [read(client, topic, start, end, partition)], writer=name, number=number, topics=topics)
        start = end


def test_an_archive_that_is_whole(table: Table, client: Client, topic: str, topics: Topics) -> None:
    fill(client, topic, 1000, codec=Codec.ZSTD)
    fill(client, topic, 300, partition=1)
    archive(table, client, topic, topics, [150, 400, 1000])
    archive(table, client, topic, topics, [300], partition=1)
    seen: list[Progress] = []
    report = verify(table, client, topic, on_progress=seen.append)
    assert report.ok, report.problems
    assert [(item.start, item.end, item.rows, item.topic_rows, item.gaps) for item in report.partitions] == [
        (0, 1000, 1000, 1000, {}),
        (0, 300, 300, 300, {}),
    ]
    assert report.notes == []
    assert seen[-1] == (TopicPartition(topic, 1), 300, 300)
    assert len(report.rows()[0]) == len(report.HEADER)
    assert report.rows()[0][-1] == "ok"
    table.compact()
    assert verify(table, client, topic, {0: (100, 900)}).ok
    assert verify(table, client, topic, whole_topic=True).ok


def test_small_steps_give_the_same_answer(
    delta: Table, client: Client, topic: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 500, size=70)
    archive(delta, client, topic, topics, [300, 500])
    whole = verify(delta, client, topic)
    monkeypatch.setattr(verifying, "STEP_OFFSETS", 64)
    assert verify(delta, client, topic) == whole


def damage(table: Table, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrites the table's first file behind its back."""
    path = min(table.files()).removeprefix("file://")
    changed = change(pq.ParquetFile(path).read())
    pq.write_table(changed, path)


def test_faults_are_named(iceberg: Table, client: Client, topic: str, topics: Topics) -> None:
    fill(client, topic, 200)
    archive(iceberg, client, topic, topics, [200])
    damage(iceberg, lambda found: pa.concat_tables([found.slice(0, 50), found.slice(55), found.slice(60, 2)]))
    report = verify(iceberg, client, topic)
    (problem,) = report.partitions
    assert (problem.missing, problem.duplicates, problem.rows) == (5, 2, 197)
    assert report.problems == [
        f"{topic}-0: offsets 0 to 200 have 197 rows, but 200 were committed",
        f"{topic}-0: 5 records of the topic are missing: 50–54",
        f"{topic}-0: 2 rows are there twice",
    ]
    assert not report.ok


def test_other_contents_are_noticed(iceberg: Table, client: Client, topic: str, topics: Topics) -> None:
    fill(client, topic, 200)
    archive(iceberg, client, topic, topics, [200])

    def change(found: pa.Table) -> pa.Table:
        values = found["value"].to_pylist()
        values[7] = values[7] + b"!"
        return found.set_column(found.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))

    damage(iceberg, change)
    assert verify(iceberg, client, topic).problems == [
        f"{topic}-0: offsets 0 to 200 do not have the contents that the topic has",
        f"{topic}-0: offsets 0 to 200 do not have the contents that were committed",
    ]
    assert verify(iceberg, None, topic).problems == [
        f"{topic}-0: offsets 0 to 200 do not have the contents that were committed"
    ]


def test_rows_that_the_topic_never_had(delta: Table, client: Client, topic: str, topics: Topics) -> None:
    fill(client, topic, 100)
    archive(delta, client, topic, topics, [100])
    batch = read(client, topic, 0, 100)
    more = batch.set_column(4, "offset", pa.array(range(100, 200), pa.int64()))
    commit(delta, [more], writer="q0", number=1)
    report = verify(delta, client, topic)
    assert report.problems == [f"{topic}-0: 100 offsets are not in the topic: 100–199"]


def test_what_retention_has_taken_is_checked_by_the_commits(
    table: Table, client: Client, topic: str, topics: Topics
) -> None:
    fill(client, topic, 600)
    archive(table, client, topic, topics, [200, 600])
    delete_records(client, {TopicPartition(topic, 0): 250})
    report = verify(table, client, topic)
    assert report.ok, report.problems
    (found,) = report.partitions
    assert (found.compared_from, found.rows, found.topic_rows) == (250, 600, 350)
    assert report.notes == [
        f"{topic}-0: the topic begins at 250: 0 to 250 were checked by the table and its commits alone"
    ]
    delete_topics(client, [topic])
    client.forget([topic])
    gone = verify(table, client, topic)
    assert gone.ok, gone.problems
    assert "the topic is not there to compare with" in gone.notes[0]


def test_a_topic_of_the_same_name_is_another(delta: Table, client: Client, topic: str, topics: Topics) -> None:
    fill(client, topic, 10)
    archive(delta, client, topic, topics, [10])
    delete_topics(client, [topic])
    create_topic(client, topic, partitions=2)
    client.forget([topic])
    assert "the topic was deleted and created again" in verify(delta, client, topic).problems[0]


def test_rows_that_a_query_left_out_are_missing_and_said_to_be_filtered(
    delta: Table, client: Client, topic: str, topics: Topics
) -> None:
    fill(client, topic, 100)
    batch = read(client, topic, 0, 100)
    commit(delta, [batch.slice(0, 40)], number=0, topics=topics)
    outcome = commit(delta, [batch.slice(45, 5), pa.RecordBatch.from_pylist([], batch.schema)], number=1, topics=topics)
    assert outcome.ranges[0].gaps == (Gap(40, 45, "filtered"),)
    report = verify(delta, client, topic)
    assert report.problems == [f"{topic}-0: 5 records of the topic are missing: 40–44"]
    whole = verify(delta, client, topic, whole_topic=True)
    assert whole.partitions[0].missing == 55


def test_retention_that_overtook_the_reader_is_not_ok(delta: Table, client: Client, topic: str, topics: Topics) -> None:
    fill(client, topic, 100)
    batch = read(client, topic, 0, 100)
    commit(delta, [batch.slice(0, 40)], number=0, topics=topics)
    delete_records(client, {TopicPartition(topic, 0): 60})
    outcome = commit(delta, [batch.slice(60)], number=1, topics=topics)
    assert outcome.ranges[0].gaps == (Gap(40, 60, "deleted"),)
    assert outcome.ranges[0].dense
    report = verify(delta, client, topic)
    assert report.problems == [f"{topic}-0: 20 offsets were deleted from the topic before they were read"]


def test_a_window_tells_what_each_hole_is() -> None:
    def of(*offsets: int) -> runs.Runs:
        return runs.of_bounds((offset, offset + 1) for offset in offsets)

    window = Window(0, 20, None, of(0, 1, 2, 6, 7, 12), of(0, 1, 6, 12), of(3, 8))
    holes = runs.of_bounds([(1, 9), (15, 20)])
    assert sorted(classify(holes, window)) == [
        Gap(1, 2, "filtered"),
        Gap(2, 3, "aborted"),
        Gap(3, 4, "control"),
        Gap(4, 6, "compacted"),
        Gap(6, 7, "filtered"),
        Gap(7, 8, "aborted"),
        Gap(8, 9, "control"),
        Gap(15, 20, "compacted"),
    ]


def test_holes_behind_the_end_stay_unknown(client: Client, topic: str) -> None:
    fill(client, topic, 10)
    partition = TopicPartition(topic, 0)
    assert explain(client, partition, [(3, 5), (10, 12)]) == [Gap(3, 5, "filtered"), Gap(10, 12, "unknown")]


def test_many_holes_over_much_data_are_explained_in_few_fetches(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 20_000, size=1000)
    asked: list[int] = []

    def counted(*given: Any) -> Any:
        asked.append(given[-1])
        return window_at(*given)

    monkeypatch.setattr(gaps, "window_at", counted)
    found = explain(client, TopicPartition(topic, 0), [(offset, offset + 1) for offset in range(0, 20_000, 10)])
    assert len(found) == 2000
    assert {gap.kind for gap in found} == {"filtered"}
    assert len(asked) < 12


def test_a_filter_is_not_explained_record_by_record(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "ENOUGH_FILTERED", 100)
    fill(client, topic, 5000)
    found = explain(client, TopicPartition(topic, 0), [(0, 5000)])
    assert [gap.kind for gap in found] == ["filtered", "unknown"]
    assert found[0].end == found[1].start < 1000
    assert explain(client, TopicPartition(topic, 0), [(0, 10)], patience_s=0) == [Gap(0, 10, "unknown")]


def test_a_table_without_offsets_cannot_be_checked(tmp_path: Path, client: Client) -> None:
    schema = pa.schema([("country", pa.string())])
    reason = "lacks one of the columns topic, partition, offset"
    with made("delta", tmp_path, schema) as table, pytest.raises(TableError, match=reason):
        verify(table, client, "orders")


def test_columns_that_were_changed_are_said_not_to_be_compared(
    tmp_path: Path, client: Client, topic: str, topics: Topics
) -> None:
    fill(client, topic, 20)
    batch = read(client, topic, 0, 20)
    plain = batch.drop_columns(["value", "key"])
    with made("delta", tmp_path, plain.schema) as table:
        commit(table, [plain], number=0, topics=topics)
        report = verify(table, client, topic)
        assert report.ok, report.problems
        assert report.notes == [f"{topic}-0: not compared, since the table has no such column of the topic: key, value"]
        assert offsets_in(table) == list(range(20))


def test_a_compacted_topic_before_and_after_it_was_compacted(tmp_path: Path) -> None:
    """Rows that were archived in time stay; what was compacted before is a gap with a reason."""
    settings = {"log.cleaner.backoff.ms": 50, "log.segment.delete.delay.ms": 0}
    configs = {"retention.ms": "-1", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    with EmbeddedBroker(settings=settings) as broker, Client(broker.bootstrap_servers) as client:
        create_topic(client, "state", partitions=1, configs=configs)
        partition = TopicPartition("state", 0)
        noise = random.Random(1).randbytes(20_000)
        for number in range(60):
            found = [
                records.Record(offset=index, timestamp=number, key=b"%d" % (index % 3 + number % 2), value=noise)
                for index in range(4)
            ]
            produce(client, {partition: records.encode_batch(found)})
        topics = Topics({"bootstrap.servers": broker.bootstrap_servers})
        with made("delta", tmp_path / "early") as early, made("delta", tmp_path / "late") as late:
            archive(early, client, "state", topics, [240])
            assert early.state().total()[partition][0].rows == 240
            alter_configs(client, ResourceType.TOPIC, "state", changed={"cleanup.policy": "compact"})
            wait_until(is_clean(broker, "state"), "the topic was not compacted")
            assert offset_count(client, partition) < 150
            archive(late, client, "state", topics, [240])
            (found_range,) = late.commits()[0].ranges
            assert found_range.dense
            assert set(found_range.missing) == {"compacted"}
            report = verify(late, client, "state")
            assert report.ok, report.problems
            assert report.partitions[0].gaps == found_range.missing
            before = verify(early, client, "state")
            assert before.ok, before.problems
            assert before.partitions[0].compacted_since == found_range.missing["compacted"] + found_range.start
        topics.close()


def offset_count(client: Client, partition: TopicPartition) -> int:
    return sum(window.offsets.offset_count for window in windows(client, partition, 0, 240))


def test_transactions_leave_gaps_with_their_reasons(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes as a broker with transactions sends them."""
    mine = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    end = {"coordinator_epoch": 0, "producer_epoch": 0, "timestamp": 0, "producer_id": 7}

    def batch(first: int, **named: Any) -> bytes:
        found = [records.Record(offset=first + index, timestamp=0, key=None, value=b"v") for index in range(2)]
        return records.encode_batch(found, base_offset=first, **named)

    data = [
        batch(0, base_sequence=0, **mine),
        records.encode_end_marker(commit=False, base_offset=2, **end),
        batch(3),
        batch(8, base_sequence=2, **mine),
        records.encode_end_marker(commit=True, base_offset=10, **end),
    ]
    fetched = Fetched(TopicPartition(topic, 0), 0, 11, 11, 0, memoryview(b"".join(data)), ((7, 0),))
    monkeypatch.setattr("barnabas.spark.tables.topic.fetch", lambda *_: [fetched])
    assert explain(client, TopicPartition(topic, 0), [(0, 3), (4, 8), (9, 11)]) == [
        Gap(0, 2, "aborted"),
        Gap(2, 3, "control"),
        Gap(4, 5, "filtered"),
        Gap(5, 8, "compacted"),
        Gap(9, 10, "filtered"),
        Gap(10, 11, "control"),
    ]


def test_a_file_that_cannot_be_read_is_a_fault_of_the_table(
    delta: Table, client: Client, topic: str, topics: Topics
) -> None:
    fill(client, topic, 20)
    archive(delta, client, topic, topics, [20])
    Path(delta.files()[0]).write_bytes(b"nothing")
    report = verify(delta, client, topic)
    assert not report.ok
    assert "offsets 0 to 20 cannot be read from the table" in report.problems[0]
