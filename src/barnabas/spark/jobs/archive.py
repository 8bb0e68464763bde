"""A topic into a table, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException, StreamingQueryException

from barnabas.spark.lag import lag_of
from barnabas.spark.pipelines.definitions import plain
from barnabas.spark.tables.files import names, open_place
from barnabas.spark.tables.folder import COMPACT, SINK_LOG
from barnabas.spark.tables.options import PARQUET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S = 1
BATCH_PATIENCE_S = 3.0
STOP_TIMEOUT = "5s"
"""A commit or a compaction under way is waited for this long. Ended in its middle, it is as if it had not begun."""


class JobFailed(RuntimeError):
    """What went wrong, in words for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    topics: tuple[str, ...]
    servers: str
    table: Mapping[str, str]
    """Options of the table sink, or of a Parquet folder."""
    checkpoint: str
    follow: bool = False
    """Go on with what comes, until stopped."""
    every_s: float = 10.0
    """With ``follow``: how often a batch is begun, at most."""
    max_per_batch: int = 2_000_000
    headers: bool = True
    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""


class BatchDone(NamedTuple):
    batch_id: int
    rows: int
    seconds: float
    lag: int | None


class Archived(NamedTuple):
    rows: int
    batches: int
    seconds: float
    lag: int | None


OnBatch = Callable[[BatchDone], None]


def archive(
    spark: SparkSession,
    job: Archive,
    on_batch: OnBatch | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Archived:
    """Brings the table up to where the topics were when it was begun, or follows them until it should stop.

    Raises JobFailed.
    """
    began = time.monotonic()
    reported = _Reported(on_batch)
    spark.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
    query = start(spark, job)
    try:
        while not query.awaitTermination(POLL_S) and not should_stop():
            reported.look(query)
    except StreamingQueryException as error:
        if not should_stop():  # else it is what was interrupted
            raise JobFailed(reason_of(error)) from error
    finally:
        _stop(query)
    reported.look(query)
    return Archived(reported.rows, reported.batches, time.monotonic() - began, reported.lag)


def _stop(query: StreamingQuery) -> None:
    if query.isActive:
        _await_end_of_batch(query)
        with suppress(PySparkException):  # it did not end in time: it ends with the session
            query.stop()


def _await_end_of_batch(query: StreamingQuery) -> None:
    """Tasks that are cancelled while they run leave stack traces on Spark's standard error."""
    batch, deadline = query.lastProgress, time.monotonic() + BATCH_PATIENCE_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        if query.lastProgress != batch:
            return
        time.sleep(0.02)


def start(spark: SparkSession, job: Archive) -> StreamingQuery:
    options = {
        "kafka.bootstrap.servers": job.servers,
        "subscribe": ",".join(job.topics),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(job.max_per_batch),
        "includeHeaders": str(job.headers).lower(),
        **{name: value for name, value in job.table.items() if name.lower() == "failondataloss"},  # of both or of none
        **job.source,
    }
    rows = spark.readStream.format("barnabas").options(**options).load()
    writer = (_to_folder if job.table["tableFormat"] == PARQUET else _to_table)(rows, job)
    writer = writer.option("checkpointLocation", job.checkpoint)
    if job.follow:
        return writer.trigger(processingTime=f"{job.every_s} seconds").start()
    return writer.trigger(availableNow=True).start()


def _to_table(rows: DataFrame, job: Archive) -> DataStreamWriter:
    return rows.writeStream.format("barnabas").options(**{"kafka.bootstrap.servers": job.servers, **job.table})


def _to_folder(rows: DataFrame, job: Archive) -> DataStreamWriter:
    """Spark's own file sink: its log makes each batch count once. Raises JobFailed."""
    given = {name.lower(): value for name, value in job.table.items()}
    _check_numbering(given["path"], job.checkpoint)
    writer = rows.writeStream.format("parquet").option("path", given["path"])
    if "compression" in given:
        writer = writer.option("compression", given["compression"])
    if "partitionby" in given:
        columns = [name.strip() for name in given["partitionby"].split(",")]
        if unknown := [name for name in columns if name not in rows.columns]:
            raise JobFailed(f"partitionBy names {unknown[0]}: {', '.join(rows.columns)} are the columns")
        writer = writer.partitionBy(*columns)
    return writer


def _check_numbering(folder: str, checkpoint: str) -> None:
    """Spark's sink skips batches whose numbers are in its log. Under another checkpoint, those are other batches."""
    written, planned = (
        max((int(name.removesuffix(COMPACT)) for name in found if name.removesuffix(COMPACT).isdigit()), default=-1)
        for found in (names(open_place(folder), SINK_LOG), names(open_place(checkpoint), "offsets"))
    )
    if written > planned:
        raise JobFailed(
            f"the folder {folder} was written with another checkpoint than {checkpoint}: Spark would leave out batches "
            "whose numbers it has already; name that checkpoint, or write to another folder"
        )


def reason_of(error: Exception) -> str:
    """The last line of the Python error that Spark wraps in its own, or else Spark's first."""
    text = str(error)
    marks = ("barnabas.", "Error: ", "Exception: ")
    lines = [line.strip() for line in text.splitlines() if any(mark in line for mark in marks)]
    named = [line for line in lines if line.startswith("barnabas.") or line.split(":", 1)[0].endswith("Error")]
    if not named:
        return plain(error)
    _, _, reason = named[-1].partition(": ")
    return reason or named[-1]


class _Reported:
    """Batches that were reported, each once."""

    def __init__(self, on_batch: OnBatch | None) -> None:
        self.rows = 0
        self.batches = 0
        self.lag: int | None = None
        self._last = -1
        self._on_batch = on_batch

    def look(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            batch_id, rows = int(progress["batchId"]), int(progress["numInputRows"])
            if batch_id <= self._last or (not rows and not progress["sources"]):
                continue
            self._last = batch_id
            self.rows += rows
            self.batches += bool(rows)
            lags = [lag_of(source) for source in progress["sources"]]
            self.lag = sum(lag or 0 for lag in lags) if None not in lags else None
            if self._on_batch and rows:
                seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
                self._on_batch(BatchDone(batch_id, rows, seconds, self.lag))
