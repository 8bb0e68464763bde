"""Topics in folders of plain Parquet, as Spark's own sinks write them: archived, verified, replayed, compared."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from barnabas.cli import main
from barnabas.client.wire import Client
from barnabas.client.wire.admin import delete_records
from barnabas.model.ids import TopicPartition
from barnabas.spark.jobs import compare, rows
from barnabas.spark.jobs.archive import Archive, JobFailed, archive
from barnabas.spark.tables.folder import ParquetFolder
from barnabas.spark.tables.formats import table_options
from barnabas.spark.verify import Report, verify
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import Reading, values, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Kit:
    def __init__(self, spark: SparkSession, client: Client, servers: str, topic: str, path: Path) -> None:
        self.spark, self.client, self.servers, self.topic = spark, client, servers, topic
        self.folder, self.checkpoint = path / "a folder", path / "checkpoint"

    def fill(self, count: int) -> None:
        for partition in range(2):
            # Old records would be taken by retention in the middle of a test.
            write(self.client, self.topic, values(count), partition=partition, timestamp=int(time.time() * 1000))

    def archive(self, *, checkpoint: Path | None = None, max_per_batch: int = 150, **table: str) -> int:
        job = Archive(
            topics=(self.topic,),
            servers=self.servers,
            table=table_options(f"parquet:{self.folder}", table),
            checkpoint=str(checkpoint or self.checkpoint),
            max_per_batch=max_per_batch,
        )
        return archive(self.spark, job).rows

    def open(self) -> ParquetFolder:
        return ParquetFolder({"path": str(self.folder)})

    def verify(self) -> Report:
        return verify(self.open(), self.client, self.topic, whole_topic=True)


@pytest.fixture
def kit(spark: SparkSession, client: Client, broker: EmbeddedBroker, topic: str, tmp_path: Path) -> Kit:
    return Kit(spark, client, broker.bootstrap_servers, topic, tmp_path)


def test_an_archive_is_exactly_once_over_restarts_and_compactions_of_the_sinks_log(kit: Kit) -> None:
    kit.fill(500)
    assert kit.archive(max_per_batch=80) == 1000  # more than ten batches: Spark compacts its log at the tenth
    assert list((kit.folder / "_spark_metadata").glob("*.compact"))
    kit.fill(100)
    assert kit.archive() == 200
    last = max(int(file.name) for file in (kit.checkpoint / "commits").iterdir() if file.name.isdigit())
    for name in (str(last), f".{last}.crc"):  # as if the driver had died before Spark recorded the batch
        (kit.checkpoint / "commits" / name).unlink(missing_ok=True)
    kit.archive()
    report = kit.verify()
    assert report.ok, report.problems
    assert [(item.rows, item.topic_rows) for item in report.partitions] == [(600, 600), (600, 600)]
    assert not any("not compared" in note for note in report.notes), "key, value and time are compared"


def test_files_of_a_batch_that_was_cut_off_do_not_count(kit: Kit) -> None:
    kit.fill(50)
    kit.archive()
    source = next(kit.folder.glob("*.parquet"))
    shutil.copy(source, kit.folder / "part-of-a-killed-task.parquet")
    assert kit.verify().ok
    shutil.rmtree(kit.folder / "_spark_metadata")  # now every file counts
    assert any("rows are there twice" in problem for problem in kit.verify().problems)


def test_faults_are_named(kit: Kit) -> None:
    kit.fill(100)
    kit.archive(max_per_batch=1000)
    file = max(kit.folder.glob("*.parquet"))
    found = pq.read_table(file)
    partition = found["partition"][0].as_py()
    pq.write_table(found.slice(0, 40).take([*range(30), *range(35, 40)]), file)
    problems = kit.verify().problems
    assert problems == [f"{kit.topic}-{partition}: 65 records of the topic are missing: 30–34, 40–99"]
    report = verify(kit.open(), kit.client, kit.topic)
    assert any("nothing is said of records before the first row" in note for note in report.notes)


def test_holes_that_the_topic_no_longer_explains_are_problems(kit: Kit) -> None:
    kit.fill(60)
    kit.archive()
    delete_records(kit.client, {TopicPartition(kit.topic, 0): 50})
    assert verify(kit.open(), kit.client, kit.topic).ok
    file = next(file for file in kit.folder.glob("*.parquet") if pq.read_table(file)["partition"][0].as_py() == 0)
    found = pq.read_table(file)
    pq.write_table(found.take([0, *range(5, found.num_rows)]), file)
    assert any(
        "without a row and without a reason" in problem for problem in verify(kit.open(), None, kit.topic).problems
    )


def test_another_checkpoint_is_refused_where_spark_would_skip_batches(kit: Kit, tmp_path: Path) -> None:
    kit.fill(20)
    kit.archive()
    with pytest.raises(JobFailed, match="was written with another checkpoint"):
        kit.archive(checkpoint=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert kit.verify().ok


def test_options_of_a_folder(kit: Kit) -> None:
    kit.fill(20)
    with pytest.raises(JobFailed, match="partitionBy names day"):
        kit.archive(partitionBy="day(timestamp)")
    kit.archive(partitionBy="topic, partition", compression="gzip")
    assert list(kit.folder.glob(f"topic={kit.topic}/partition=1/*.gz.parquet"))
    report = kit.verify()
    assert report.ok, report.problems
    assert [item.rows for item in report.partitions] == [20, 20]


def test_a_batch_write_is_verified_replayed_and_compared(kit: Kit, reading: Reading, spark: SparkSession) -> None:
    kit.fill(40)
    reading.batch(subscribe=kit.topic).write.parquet(str(kit.folder))
    report = kit.verify()
    assert report.ok, report.problems
    folder = kit.open()
    bounds = rows.bounds_of_table(folder, kit.topic)
    assert bounds == {TopicPartition(kit.topic, number): (0, 40) for number in range(2)}
    pieces = list(rows.of_table(folder, bounds, rows.Period(since_ms=1)))
    assert sum(piece.batch.num_rows for piece in pieces) == 80
    source = {"kafka.bootstrap.servers": kit.servers, "subscribe": kit.topic}
    table = compare.table(spark, table_options(f"parquet:{kit.folder}"), kit.topic)
    assert compare.compare(compare.topic(spark, source), table, "offset").same


def command(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in ("pipeline", *words)])


def test_the_command_verifies_a_folder(kit: Kit) -> None:
    kit.fill(30)
    kit.archive()
    given = ["--table", f"parquet:{kit.folder}", "-b", kit.servers, "--json"]
    done = command("verify", kit.topic, *given, "--whole-topic")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["ok"]
    missing = command("verify", kit.topic, "--table", f"parquet:{kit.folder}-not", "-b", kit.servers)
    assert missing.exit_code == 1
    assert "there is no table at" in missing.output
    wrong = command("verify", kit.topic, *given, "--table-option", "expireAfter=1d")
    assert "expireAfter is no option of a Parquet folder" in wrong.output
