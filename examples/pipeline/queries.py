"""What the shop wants to know, as streams. Each query reads what is there and ends; run again, it goes on."""

from __future__ import annotations

import time
from pathlib import Path

from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

ORDER = "order STRING, customer STRING, item STRING, amount DOUBLE, status STRING, time LONG"
PAYMENT = "order STRING, amount DOUBLE, method STRING, time LONG"
CLICK = "page STRING, took_ms DOUBLE, time LONG"

PROGRESS_S = 2


class Shop:
    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder

    def table(self, name: str) -> Path:
        return self._folder / "tables" / name

    # Streams in

    def stream(self, topic: str, fields: str) -> DataFrame:
        """A topic with its JSON taken apart and the time of the event as a timestamp."""
        rows = (
            self._spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        parsed = rows.select(f.from_json(f.col("value").cast("string"), fields).alias("event"), "partition", "offset")
        return parsed.select("event.*", f.timestamp_millis("event.time").alias("at"), "partition", "offset")

    # What is made of them

    def paid_orders(self) -> DataFrame:
        """Orders with their payments: a join of two streams, each of which may be late by two minutes."""
        orders = self.stream("orders", ORDER).filter("status = 'placed'").withWatermark("at", "2 minutes").alias("o")
        payments = self.stream("payments", PAYMENT).withWatermark("at", "2 minutes").alias("p")
        in_time = f.expr("p.order = o.order AND p.at BETWEEN o.at AND o.at + INTERVAL 10 MINUTES")
        return orders.join(payments, in_time).select(
            "o.order", "o.customer", "o.item", "o.amount", "p.method",
            f.col("o.at").alias("placed_at"), f.col("p.at").alias("paid_at"),
            (f.unix_millis("p.at") - f.unix_millis("o.at")).alias("delay_ms"),
        )  # fmt: skip

    def page_speed(self) -> DataFrame:
        """Clicks of each page in each minute: how many, how many a second, how slow."""
        clicks = self.stream("clicks", CLICK).withWatermark("at", "1 minute")
        by_minute = clicks.groupBy(f.window("at", "1 minute").alias("minute"), "page").agg(
            f.count("*").alias("clicks"),
            f.percentile_approx("took_ms", 0.5).alias("p50_ms"),
            f.percentile_approx("took_ms", 0.99).alias("p99_ms"),
        )
        per_second = f.round(f.col("clicks") / 60, 3).alias("per_second")
        return by_minute.select(f.col("minute.start").alias("minute"), "page", "clicks", per_second, "p50_ms", "p99_ms")

    def order_state(self) -> DataFrame:
        """The latest status of each order, whenever it changes: what goes to a compacted topic."""
        latest = (
            self.stream("orders", ORDER)
            .groupBy("order")
            .agg(f.max_by(f.struct("customer", "item", "amount", "status", "time"), "time").alias("state"))
        )
        return latest.select(f.col("order").alias("key"), f.to_json("state").alias("value"))

    # Streams out

    def to_table(self, rows: DataFrame, name: str) -> StreamingQuery:
        return (
            rows.writeStream.format("barnabas")
            .queryName(name)
            .option("tableFormat", "delta")
            .option("checkpointLocation", str(self._folder / "checkpoints" / name))
            .trigger(availableNow=True)
            .start(str(self.table(name)))
        )

    def to_topic(self, rows: DataFrame, topic: str) -> StreamingQuery:
        """Rows that change go out with each batch: Spark lets a sink in Python append only, so foreachBatch does it."""

        def send(batch: DataFrame, _number: int) -> None:
            writer = batch.write.format("barnabas").option("kafka.bootstrap.servers", self._servers)
            writer.option("topic", topic).mode("append").save()

        return (
            rows.writeStream.queryName(topic)
            .foreachBatch(send)
            .option("checkpointLocation", str(self._folder / "checkpoints" / topic))
            .outputMode("update")
            .trigger(availableNow=True)
            .start()
        )

    def snapshot(self, topic: str, name: str) -> int:
        """A table of the latest value of each key of a topic, as it is now, in place of an earlier one. How many.

        The sink only appends, so deltalake replaces the table: readers see the old snapshot or the new one.
        """
        rows = (
            self._spark.read.format("barnabas")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", topic)
            .load()
        )
        last = rows.groupBy("key").agg(f.max_by("value", f.struct("offset")).alias("value"))
        fields = "customer STRING, item STRING, amount DOUBLE, status STRING, time LONG"
        state = last.select(
            f.col("key").cast("string").alias("order"), f.from_json(f.col("value").cast("string"), fields).alias("s")
        ).select("order", "s.*")
        found = state.toArrow()
        write_deltalake(str(self.table(name)), found, mode="overwrite")
        return int(found.num_rows)

    # How far they are

    def watch(self, query: StreamingQuery) -> None:
        """Waits for the query's end, and says every few seconds how far it is."""
        began = time.monotonic()
        while not query.awaitTermination(PROGRESS_S):
            rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
            done, tasks = self._tasks()
            running = f", {done} of {tasks} tasks done" if tasks else ""
            message = str(query.status["message"]).lower()
            print(f"  {time.monotonic() - began:.0f} s: {rows:,} rows read, {message}{running}", flush=True)

    def _tasks(self) -> tuple[int, int]:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number)) is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
