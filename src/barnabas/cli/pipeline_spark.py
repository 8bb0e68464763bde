"""What the jobs of ``barnabas pipeline`` share: options, the Spark session, Ctrl-C, errors as sentences.

PySpark's own handler of Ctrl-C talks to Java on a connection that the main thread is waiting on, which fails with a
stack of errors and leaves the query running. Here the first SIGINT is noted, and another thread cancels Spark's jobs
on a connection of its own. A second SIGINT ends the command where it is.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import click

from barnabas.cli.options import parse_pairs, time_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "TABLE is delta:FOLDER, parquet:FOLDER or iceberg:WAREHOUSE#NAMESPACE.NAME."

CANCEL_EVERY_S = 0.1
INTERRUPTED = 130
"""The exit code, as shells have it for SIGINT."""


def master_option(command: Any) -> Any:
    return click.option("--master", help="Where Spark runs: local[*], spark://…, yarn, ….  [default: local[*]]")(
        command
    )


def table_option_option(command: Any) -> Any:
    return click.option(
        "--table-option",
        "table_given",
        multiple=True,
        metavar="KEY=VALUE",
        callback=parse_pairs,
        help="An option of the table: partitionBy, targetFileSize, catalog.uri, … May be repeated.",
    )(command)


def period_options(command: Any) -> Any:
    command = click.option("--until", metavar="TIME", callback=time_option, help="Only records before it.")(command)
    return click.option(
        "--since", metavar="TIME", callback=time_option, help="Only records from then on: ISO 8601, or -1h."
    )(command)


def need_spark() -> None:
    """Spark is an extra of the package: say so before anything fails for want of it."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")  # of versions of pandas
    try:
        import pyspark  # noqa: F401, PLC0415 -- whether it is there is the question
    except ImportError:
        raise click.ClickException("Spark is not installed. Try: pip install 'barnabas[spark]'") from None


@contextmanager
def sentences() -> Iterator[None]:
    """What users' options, tables and Java can do wrong becomes one sentence."""
    need_spark()
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from barnabas.spark.client_settings import SparkOptionError  # noqa: PLC0415 - needs pyarrow
    from barnabas.spark.exactly_once.names import ExactlyOnceError  # noqa: PLC0415
    from barnabas.spark.java import JavaMissing  # noqa: PLC0415
    from barnabas.spark.jobs.archive import JobFailed, reason_of  # noqa: PLC0415
    from barnabas.spark.tables.errors import TableError  # noqa: PLC0415

    try:
        yield
    except (SparkOptionError, TableError, JavaMissing, JobFailed, ExactlyOnceError) as error:
        raise click.ClickException(str(error)) from error
    except PySparkException as error:
        raise click.ClickException(reason_of(error)) from error


@contextmanager
def spark_session(name: str, master: str | None, as_json: bool) -> Iterator[SparkSession]:
    """For jobs that SIGINT cancels."""
    with spark_until_stopped(name, master, as_json) as (spark, stopping):
        stopping.take_over(cancel=spark.interruptAll)
        try:
            yield spark
        except Exception:
            if stopping.is_asked:  # what Spark says about jobs that were cancelled
                raise Stopped from None
            raise


@contextmanager
def spark_until_stopped(name: str, master: str | None, as_json: bool) -> Iterator[tuple[SparkSession, Stopping]]:
    """For jobs that look themselves whether they are to end."""
    from barnabas.spark.session import session  # noqa: PLC0415 - needs Spark

    if not as_json:
        click.echo(f"starting Spark ({master or 'local[*]'})", err=True)
    with Stopping() as stopping:
        spark = session(f"barnabas {name}", master, silent=True)
        try:
            stopping.take_over()
            yield spark, stopping
        finally:
            spark.stop()


class Stopped(click.exceptions.Exit):
    """The user stopped the command before it was done."""

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


class Stopping:
    """Whether the user has asked for an end. A context manager, for the main thread; elsewhere it does nothing."""

    def __init__(self) -> None:
        self.is_asked = False
        self._cancel: Callable[[], object] | None = None
        self._before: Any = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        self.take_over()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if _is_main_thread():
            signal.signal(signal.SIGINT, self._before)

    def take_over(self, cancel: Callable[[], object] | None = None) -> None:
        """Also after Spark has started, which puts its own handler in place. ``cancel`` ends what Spark is doing."""
        self._cancel = cancel
        if _is_main_thread():
            signal.signal(signal.SIGINT, self._on_interrupt)
        if self.is_asked:
            raise Stopped

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        click.echo("stopping", err=True)
        if self._cancel is not None:
            threading.Thread(target=self._keep_cancelling, args=(self._cancel,), daemon=True).start()

    def _keep_cancelling(self, cancel: Callable[[], object]) -> None:
        """A job may begin right after all others were cancelled."""
        with suppress(Exception):  # the session is gone
            while not self._ended.wait(CANCEL_EVERY_S):
                cancel()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def check_topic(bootstrap: str, topic: str) -> None:
    """Reports a mistyped name before Spark starts."""
    from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast

    with Client(bootstrap) as client:
        client.topic(topic)
