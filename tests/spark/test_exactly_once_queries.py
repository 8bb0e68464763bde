"""The exactly-once sink in Spark's own queries: streams, repeated batches, batch writes, and kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.transactions import ONGOING, TransactionFilter, list_transactions
from barnabas.testing import EmbeddedBroker
from tests.spark import kill_exactly_once
from tests.spark.conftest import Reading, values
from tests.spark.transactional import sees, visible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Sink:
    def __init__(self, servers: str, topic: str) -> None:
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryMode": "exactly-once"}
        self._options = options

    def write(self, df: DataFrame, **options: Any) -> None:
        df.write.format("barnabas").options(**self._options, **options).mode("append").save()

    def stream(self, df: DataFrame, checkpoint: Path, **options: Any) -> None:
        writer = df.writeStream.format("barnabas").options(**self._options, **options)
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def target(client: Client, new_topic: Callable[[], str]) -> str:
    return new_topic()


@pytest.fixture
def sink(broker: EmbeddedBroker, target: str) -> Sink:
    return Sink(broker.bootstrap_servers, target)


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count, 1, 3).selectExpr("concat('v', id) value")


def names(first: int, count: int) -> list[str]:
    return [f"v{number}" for number in range(first, first + count)]


def test_a_stream_whose_last_batch_comes_again(
    reading: Reading, sink: Sink, client: Client, topic: str, target: str, fill: Callable[..., None], tmp_path: Path
) -> None:
    """Killed after the sink's commit and before Spark has noted it."""
    fill(topic, values(50))
    source = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    sink.stream(source, tmp_path)
    assert sees(client, target, names(0, 50))
    commits = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        file.unlink(missing_ok=True)
    fill(topic, values(5, first=50))
    sink.stream(source, tmp_path)
    assert sees(client, target, names(0, 55))


def test_a_lost_checkpoint_costs_nothing_with_the_source_of_rows(
    reading: Reading, sink: Sink, client: Client, topic: str, target: str, fill: Callable[..., None], tmp_path: Path
) -> None:
    fill(topic, values(30))
    fill(topic, values(30, first=30), partition=1)
    source = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    placed = source.selectExpr("value", "struct(topic, partition, offset) source")
    options = {"applicationId": target, "sourceColumn": "source"}
    sink.stream(placed, tmp_path / "first", **options)
    fill(topic, values(10, first=60))
    sink.stream(placed, tmp_path / "second", **options)
    assert sees(client, target, names(0, 70))


def test_batch_writes_with_and_without_a_name(spark: SparkSession, sink: Sink, client: Client, target: str) -> None:
    sink.write(rows(spark, 0, 30))
    assert visible(client, target) == sorted(names(0, 30)), "at once"
    for _ in range(2):
        sink.write(rows(spark, 30, 10), applicationId=target, batchId=0)
    sink.write(rows(spark, 40, 10), applicationId=target, batchId=1)
    assert sees(client, target, names(0, 50))


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, sink: Sink, client: Client, target: str) -> None:
    sink.write(rows(spark, 0, 5))
    failing = spark.range(0, 90, 1, 3).selectExpr("if(id = 80, raise_error('on purpose'), concat('x', id)) value")
    with pytest.raises(Exception, match="on purpose"):
        sink.write(failing)
    assert sees(client, target, names(0, 5))
    ongoing = list_transactions(client, TransactionFilter(states=[ONGOING]))
    assert [each for each in ongoing if each.transactional_id.startswith("barnabas-sink-")] == []


def test_options_that_do_not_go_together(spark: SparkSession, sink: Sink) -> None:
    with pytest.raises(Exception, match="applicationId and batchId go together in a batch write"):
        sink.write(rows(spark, 0, 1), batchId=3)
    with pytest.raises(Exception, match="column 'source' is missing"):
        sink.write(rows(spark, 0, 1), applicationId="a", batchId=0, sourceColumn="source")


def test_a_driver_and_a_worker_are_killed(tmp_path: Path) -> None:
    result = kill_exactly_once.run(20_000, 2, 1, tmp_path)
    assert result.is_exact, result
    assert result.kills == {"driver": 1, "worker": 1}
