"""What people do with streams, each on our source: windows, joins, duplicates, state, batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from tests.spark.conftest import Reading, write

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

PATIENCE_S = 60
SECOND_MS = 1000
NOON_MS = 1_714_564_800_000
"""2024-05-01 12:00:00 UTC"""


def order(number: int, user: str, amount: int, seconds: int) -> tuple[bytes, bytes]:
    text = json.dumps({"order": number, "user": user, "amount": amount, "at": NOON_MS // 1000 + seconds})
    return user.encode(), text.encode()


def typed(frame: Any) -> Any:
    """Orders out of JSON, with the time that they tell themselves."""
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col("value").cast("string"), "order INT, user STRING, amount INT, at BIGINT")
    return frame.select(parsed.alias("o")).select("o.*", f.timestamp_seconds("o.at").alias("time"))


def table(frame: Any, checkpoint: Path, mode: str, name: str) -> list[Any]:
    """The rows after one pass."""
    writer = frame.writeStream.format("memory").queryName(name).outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return list(frame.sparkSession.sql(f"SELECT * FROM {name}").collect())


@pytest.fixture
def name(topic: str) -> str:
    """For a table in memory."""
    return topic.replace("-", "_")


def test_windows_with_a_watermark(reading: Reading, client: Client, topic: str, name: str, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    write(client, topic, [order(1, "ann", 5, 0), order(2, "bob", 7, 30), order(3, "ann", 1, 70)])
    write(client, topic, [order(4, "ann", 2, 300)], partition=1)
    orders = typed(reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4))
    counted = orders.withWatermark("time", "1 minute").groupBy(f.window("time", "1 minute"), "user").count()
    rows = table(counted, tmp_path, "append", name)
    found = {(row.window.start.minute, row.user): row["count"] for row in rows}
    assert found == {(0, "ann"): 1, (0, "bob"): 1, (1, "ann"): 1}  # the last window is still open


def test_two_streams_joined(
    reading: Reading, client: Client, topic: str, name: str, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    payments = new_topic()
    create_topic(client, payments, partitions=1)
    write(client, topic, [order(1, "ann", 5, 0), order(2, "bob", 7, 10)])
    write(client, payments, [order(2, "bob", 7, 20), order(9, "eve", 1, 20)])
    left = typed(reading.stream(subscribe=topic, startingOffsets="earliest")).withWatermark("time", "1 minute")
    right = typed(reading.stream(subscribe=payments, startingOffsets="earliest")).withWatermark("time", "1 minute")
    within = f.expr("p.order = o.order AND p.time BETWEEN o.time AND o.time + INTERVAL 1 MINUTE")
    joined = left.alias("o").join(right.alias("p"), within).select("o.order", f.col("p.amount").alias("paid"))
    assert [tuple(row) for row in table(joined, tmp_path, "append", name)] == [(2, 7)]


def test_duplicates_within_the_watermark(
    reading: Reading, client: Client, topic: str, name: str, tmp_path: Path
) -> None:
    write(client, topic, [order(1, "ann", 5, 0), order(1, "ann", 5, 1), order(2, "bob", 7, 2)])
    write(client, topic, [order(1, "ann", 5, 3)], partition=1)
    orders = typed(reading.stream(subscribe=topic, startingOffsets="earliest")).withWatermark("time", "1 minute")
    rows = table(orders.dropDuplicatesWithinWatermark(["order"]), tmp_path, "append", name)
    assert sorted(row.order for row in rows) == [1, 2]


def test_state_per_key(reading: Reading, spark: Any, client: Client, topic: str, name: str, tmp_path: Path) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Totals(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total INT")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            before = self.total.get()[0] if self.total.exists() else 0
            now = before + sum(row.amount for row in rows)
            self.total.update((now,))
            yield Row(user=key[0], total=now)

    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    try:
        write(client, topic, [order(1, "ann", 5, 0), order(2, "bob", 7, 1)])
        orders = typed(reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2))
        summed = orders.groupBy("user").transformWithState(
            statefulProcessor=Totals(), outputStructType="user STRING, total INT", outputMode="Update", timeMode="None"
        )
        write(client, topic, [order(3, "ann", 2, 2)])
        rows = table(summed, tmp_path, "update", name)
        assert max(row.total for row in rows if row.user == "ann") == 7
        assert [row.total for row in rows if row.user == "bob"] == [7]
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def test_a_stream_beside_a_batch_of_the_same_topic(
    reading: Reading, client: Client, topic: str, name: str, tmp_path: Path
) -> None:
    """The rows of a stream and of a batch query are the same rows."""
    for partition in (0, 1):
        write(client, topic, [order(number, "ann", 1, number) for number in range(20)], partition=partition)
    streamed = table(reading.stream(subscribe=topic, startingOffsets="earliest"), tmp_path, "append", name)
    batch = reading.batch(subscribe=topic).collect()
    assert sorted(map(tuple, streamed), key=lambda row: row[3:5]) == sorted(map(tuple, batch), key=lambda row: row[3:5])


def test_how_far_a_query_is_behind(reading: Reading, client: Client, topic: str, name: str, tmp_path: Path) -> None:
    """The metrics of Spark's own Kafka source, from the progress of each batch."""
    from barnabas.spark.lag import offsets_behind_latest

    for partition in (0, 1):
        write(client, topic, [order(number, "ann", 1, number) for number in range(20)], partition=partition)
    rows = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    writer = rows.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    behind = [offsets_behind_latest(progress["sources"][0]) for progress in query.recentProgress]
    assert [found["avgOffsetsBehindLatest"] for found in behind[:2]] == [10.0, 0.0]
    assert set(behind[0]) == {"minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest"}
