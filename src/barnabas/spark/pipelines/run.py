"""One pass over a pipeline, and the progress it reports."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.spark.lag import lag_of
from barnabas.spark.pipelines.definitions import PipelineError, Places, Project, plain, register
from barnabas.spark.pipelines.events import Choice, FlowEvent, FlowProgress, Outcome, Report
from barnabas.spark.pipelines.project import METASTORE, WAREHOUSE
from barnabas.spark.session import JAVA_OPTIONS, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LISTENER_GRACE_S = 5.0
"""Progress comes by another way than the events: the last of it may be behind them."""

FAILURES = ("HAS FAILED", "FAILED TO RESOLVE", "HAS STOPPED")
RUN_FAILED = "Run is FAILED"


def connect(project: Project, master: str | None, config: Mapping[str, str] | None = None) -> SparkSession:
    """A session as pipelines need it: of Spark Connect, its server started here unless ``master`` is one (sc://…)."""
    settings: dict[str, object] = {"spark.sql.connect.serverStacktrace.enabled": "false"}
    if not (master or "").startswith("sc://"):
        settings |= _kept_in(project.folder)
    with warnings.catch_warnings():
        # A server that was started with a setting does not let it be set again, and Spark warns of each.
        warnings.simplefilter("ignore")
        return session(
            project.spec.name, master, _merged(settings, project.spec.configuration, config or {}), silent=True
        )


def _merged(*layers: Mapping[str, object]) -> dict[str, object]:
    """Later layers go before earlier ones, but options of Java add up."""
    merged = {name: value for layer in layers for name, value in layer.items()}
    options = [str(layer[JAVA_OPTIONS]) for layer in layers if JAVA_OPTIONS in layer]
    return {**merged, JAVA_OPTIONS: " ".join(options)} if options else merged


def _kept_in(folder: Path) -> dict[str, object]:
    """A server whose tables, and what is known of them, are in the project's folder: the next run finds them there."""
    return {
        "spark.api.mode": "connect",
        "spark.sql.warehouse.dir": (folder / WAREHOUSE).as_uri(),
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / METASTORE};create=true",
        JAVA_OPTIONS: f"-Dderby.stream.error.file={folder / METASTORE}.log",
    }


def run_once(project: Project, spark: SparkSession, choice: Choice, report: Report) -> Outcome:
    """Brings the tables of the project up to date with their sources. Raises PipelineError."""
    began = time.monotonic()
    spec = project.spec
    graph_id = create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=spec.configuration
    )
    places = register(project, spark, graph_id)
    outcome = Outcome(0.0)
    listener = _Listener(outcome, report)
    spark.streams.addListener(listener)
    failures: list[str] = []
    try:
        _follow(_events(spark, graph_id, choice, spec.storage), places, report, failures)
    except PySparkException as error:
        failures.append(_located(plain(error), places))
    finally:
        listener.settle()
        spark.streams.removeListener(listener)
    if failures:
        raise PipelineError(failures[0])
    outcome.seconds = time.monotonic() - began
    return outcome


def _events(spark: SparkSession, graph_id: str, choice: Choice, storage: str) -> Iterable[Mapping[str, Any]]:
    return start_run(
        spark,
        graph_id,
        full_refresh=list(choice.full_refresh),
        full_refresh_all=choice.full_refresh_all,
        refresh=list(choice.refresh),
        dry=choice.dry,
        storage=storage,
    )


def _follow(results: Iterable[Mapping[str, Any]], places: Places, report: Report, failures: list[str]) -> None:
    """Passes the events on, and keeps the failures: the first is the cause, the last only says that the run failed."""
    for result in results:
        if "pipeline_event_result" not in result:
            continue
        message = str(result["pipeline_event_result"].event.message)
        first = plain(Exception(message))
        failed = any(word in first.upper() for word in FAILURES)
        if failed and not first.startswith(RUN_FAILED):
            failures.append(_located(first, places))
        report(FlowEvent(first, failed))


def _located(message: str, places: Places) -> str:
    place = places.named_in(message)
    return f"{place}: {message}" if place else message


class _Listener(StreamingQueryListener):
    """Hears of every batch of every flow."""

    def __init__(self, outcome: Outcome, report: Report) -> None:
        self._outcome = outcome
        self._report = report
        self._running: set[str] = set()
        self._changed = threading.Condition()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        batch = event.progress
        flow = str(batch.name or batch.id).rpartition(".")[2]
        lags = [lag for source in batch.sources if (lag := lag_of(source)) is not None]
        seconds = float(batch.durationMs.get("triggerExecution", batch.batchDuration)) / 1000
        progress = FlowProgress(flow, batch.batchId, batch.numInputRows, seconds, sum(lags) if lags else None)
        with self._changed:
            self._outcome.rows[flow] = self._outcome.rows.get(flow, 0) + progress.rows
            self._outcome.batches[flow] = self._outcome.batches.get(flow, 0) + 1
            if progress.lag is not None:
                self._outcome.lag[flow] = progress.lag
        self._report(progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def settle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running, LISTENER_GRACE_S)
