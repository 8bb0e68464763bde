"""Topics as tables through Spark: exactly once over restarts, lost checkpoints and killed workers."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.client.wire import Client
from barnabas.spark.tables.formats import open_table
from barnabas.spark.verify import Report, verify
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import Reading, values, write
from tests.unit.spark.tables_kit import FORMATS, offsets_in, read_by_others, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(params=FORMATS)
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Archive:
    """A topic of two partitions, a table, and a query between them."""

    def __init__(self, reading: Reading, client: Client, servers: str, topic: str, path: Path) -> None:
        self.reading = reading
        self.client = client
        self.topic = topic
        self.path = path
        self.checkpoint = path / "checkpoint"
        self._kafka = {"kafka.bootstrap.servers": servers}

    def fill(self, count: int) -> None:
        for partition in range(2):
            # Old records would be taken by retention in the middle of a test.
            write(self.client, self.topic, values(count), partition=partition, timestamp=int(time.time() * 1000))

    def options(self, table_format: str, **more: str) -> dict[str, str]:
        return settings(table_format, self.path, **self._kafka, **more)

    def rows(self, **options: Any) -> DataFrame:
        return self.reading.stream(subscribe=self.topic, startingOffsets="earliest", **options)

    def run(self, table_format: str, rows: DataFrame | None = None, **more: str) -> None:
        """All that is there, in one batch or more, and the query ends."""
        made = (rows if rows is not None else self.rows()).writeStream.format("barnabas")
        made = made.options(**self.options(table_format, **more)).option("checkpointLocation", str(self.checkpoint))
        query = made.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    def verify(self, table_format: str) -> Report:
        with open_table(self.options(table_format)) as table:
            return verify(table, self.client, self.topic, whole_topic=True)


@pytest.fixture
def archive(reading: Reading, client: Client, broker: EmbeddedBroker, topic: str, tmp_path: Path) -> Archive:
    return Archive(reading, client, broker.bootstrap_servers, topic, tmp_path)


def test_a_topic_becomes_a_table_exactly_once(archive: Archive, table_format: str) -> None:
    rows = archive.rows(includeHeaders=True, maxOffsetsPerTrigger=700)
    archive.fill(500)
    archive.run(table_format, rows, partitionBy="topic,day(timestamp)")
    with open_table(archive.options(table_format)) as table:
        assert table.state().commits == 2
        (query,) = table.state().writers
    archive.fill(100)
    archive.run(table_format, rows)
    replay_last_batch(archive.checkpoint)
    archive.run(table_format, rows)
    shutil.rmtree(archive.checkpoint)
    archive.fill(50)
    archive.run(table_format, rows)
    report = archive.verify(table_format)
    assert report.ok, report.problems
    assert [item.rows for item in report.partitions] == [650, 650]
    with open_table(archive.options(table_format)) as table:
        assert sorted(table.state().writers) != [query]
        assert offsets_in(table, partition=1) == list(range(650))
        for reader, offsets in read_by_others(table, archive.path).items():
            assert offsets == sorted([*range(650), *range(650)]), reader


def replay_last_batch(checkpoint: Path) -> None:
    """As if the driver had died between the table's commit and Spark's own."""
    numbers = [int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    (checkpoint / "commits" / str(max(numbers))).unlink()
    (checkpoint / "commits" / f".{max(numbers)}.crc").unlink(missing_ok=True)


def killing(marker: Path) -> Any:
    """Lets some rows through, then kills the Python worker, once."""

    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return kill_once


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_a_killed_worker_costs_no_row(archive: Archive) -> None:
    table_format = "delta"
    archive.fill(200)
    rows = archive.rows()
    torn = rows.mapInArrow(killing(archive.path / "killed"), rows.schema)
    with pytest.raises(Exception, match=r"Python worker exited unexpectedly|crashed"):
        archive.run(table_format, torn)
    archive.run(table_format, torn)
    report = archive.verify(table_format)
    assert report.ok, report.problems
    assert [item.rows for item in report.partitions] == [200, 200]


def test_a_batch_write_repeated_changes_nothing(archive: Archive, reading: Reading, spark: SparkSession) -> None:
    table_format = "iceberg"
    archive.fill(50)
    for _ in range(2):
        rows = reading.batch(subscribe=archive.topic)
        rows.repartition(3).write.format("barnabas").mode("append").options(**archive.options(table_format)).save()
    report = archive.verify(table_format)
    assert report.ok, report.problems
    counts = spark.createDataFrame([(1, "a"), (2, "b")], "number int, letter string")
    given = settings(table_format, archive.path / "counts", applicationId="daily", batchId="1")
    for _ in range(2):
        counts.write.format("barnabas").mode("append").options(**given).save()
    with open_table(given) as table:
        found = pa.Table.from_batches(table.read(["number", "letter"])).sort_by("number")
        assert found.to_pylist() == [{"number": 1, "letter": "a"}, {"number": 2, "letter": "b"}]


def test_what_a_user_got_wrong_is_said_in_words(archive: Archive, reading: Reading) -> None:
    archive.fill(5)
    rows = reading.batch(subscribe=archive.topic)

    def saved(**options: str) -> Any:
        given = archive.options("delta", **options)
        return rows.write.format("barnabas").mode("append").options(**given).save()

    with pytest.raises(Exception, match=r"partitionedby is no option of the table sink: partitionBy\?"):
        saved(partitionedBy="topic")
    with pytest.raises(Exception, match="partitionBy names the column country, which the rows do not have"):
        saved(partitionBy="country")
    assert not (archive.path / "table").exists()
    (archive.path / "table").write_text("in the way")
    with pytest.raises(Exception, match=r"the folder of the table .* is not writable"):
        saved()
    with pytest.raises(Exception, match=r"the folder of the table .* is not writable"):
        archive.run("delta")


def test_columns_of_a_users_own(archive: Archive) -> None:
    """Typed values, a filter, a column more later on: gaps are explained, types stay."""
    table_format = "delta"
    archive.fill(40)
    rows = archive.rows().selectExpr("topic", "partition", "offset", "cast(value as string) as text")
    archive.run(table_format, rows.where("offset % 4 = 0"))
    wider = archive.rows().selectExpr("topic", "partition", "offset", "cast(value as string) text", "length(key) as n")
    archive.fill(8)
    with pytest.raises(Exception, match="has no column n: set mergeSchema to true"):
        archive.run(table_format, wider)
    archive.run(table_format, wider, mergeSchema="true")
    with open_table(archive.options(table_format)) as table:
        assert offsets_in(table, partition=0) == [*range(0, 40, 4), *range(40, 48)]
        (first, *_) = reversed([item for item in table.commits() if item.ranges])
        assert {gap.kind for item in first.ranges for gap in item.gaps} == {"filtered"}
        found = pa.Table.from_batches(table.read(["offset", "text", "n"])).sort_by("offset")
        assert found["n"].to_pylist() == [None] * 20 + [2] * 16
        assert found["text"].to_pylist()[-1] == "v7"
