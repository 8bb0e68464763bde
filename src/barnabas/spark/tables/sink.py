"""The sink that Spark calls: executors write Parquet, the driver makes one commit of each batch.

Spark builds the writer on the driver for every batch, twice: to plan it, and to commit it. Planning looks at the
table, so that what is wrong with it is said before a row is read, and executors know what is there already. If a commit
fails, Spark calls ``abort`` with the same messages, although the commit may have gone through before whatever failed:
files are deleted only where a task failed, for then no commit was tried. What else is left behind, maintenance takes
away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.sink import QUERY_ID, BatchWriter, Messages, StreamWriter
from barnabas.spark.tables.base import Outcome, Table, new_writer
from barnabas.spark.tables.commit import Batch
from barnabas.spark.tables.errors import TableError
from barnabas.spark.tables.files import DataFile
from barnabas.spark.tables.formats import open_table
from barnabas.spark.tables.gaps import Topics
from barnabas.spark.tables.options import TableOptions, parse
from barnabas.spark.tables.parquet_writer import TaskName, WriteJob, write_files
from barnabas.spark.tables.schema import from_spark

_log = logging.getLogger("barnabas.spark")


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver."""

    writer: str
    application: str
    files: tuple[DataFile, ...]
    skipped: int


class Sink:
    """What both kinds of writers do."""

    def __init__(self, options: TableOptions, schema: StructType, *, streaming: bool) -> None:
        self.options = options
        self.streaming = streaming
        self.run = new_writer()
        with open_table(options) as table:
            self.job = planned(table, schema)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskMessage:
        """On an executor."""
        context = TaskContext.get()
        writer, application = self._names(context)
        number = context.getLocalProperty("streaming.sql.batchId") if context is not None and self.streaming else None
        name = TaskName(writer, int(number or self.options.batch_id or 0), context.partitionId() if context else 0)
        written = write_files(self.job, batches, name)
        return TaskMessage(writer, application, written.files, written.skipped)

    def _names(self, context: TaskContext | None) -> tuple[str, str]:
        """The writer, whose batches are numbered in one row, and the application that it counts as."""
        application = self.options.application_id
        query = context.getLocalProperty(QUERY_ID) if context is not None and self.streaming else None
        if query is None and self.streaming and application is None:
            raise TableError("the query's id is not known here: set the option applicationId")
        if not self.streaming and self.options.batch_id is None:
            return self.run, application or self.run
        writer = query or application or self.run
        return writer, application or writer

    def commit(self, messages: Messages, number: int | None) -> Outcome:
        """On the driver."""
        number = number if self.streaming else self.options.batch_id
        written = [message for message in messages if isinstance(message, TaskMessage)]
        files = tuple(file for message in written for file in message.files)
        skipped = sum(message.skipped for message in written)
        if not files:
            self._log_skipped(skipped)
            return Outcome(status="empty")
        batch = Batch(
            writer=written[0].writer,
            application=written[0].application,
            number=number,
            files=files,
            is_stream=self.streaming,
            tracked=self.job.tracked,
            scope=self.options.scope,
            skips_all=self.options.offset_scope == "table",
        )
        topics = Topics(self.options.kafka)
        try:
            with open_table(self.options) as table:
                outcome = table.commit(batch, topics)
                if outcome.status == "committed":
                    maintain(table, whole=table.is_maintenance_due(outcome))
        finally:
            topics.close()
        self._log_skipped(skipped + outcome.trimmed)
        return outcome

    def _log_skipped(self, rows: int) -> None:
        if rows:
            _log.warning(
                "%d rows were left out: the table %s has rows with their offsets from another checkpoint. If this "
                "query makes other rows of the same records, set applicationId, and offsetScope to application",
                rows,
                self.options.table or self.options.path,
            )

    def abort(self, messages: Messages) -> None:
        if all(message is not None for message in messages):
            return
        with open_table(self.options) as table:
            table.discard([file for item in messages if isinstance(item, TaskMessage) for file in item.files])


def planned(table: Table, schema: StructType) -> WriteJob:
    """Makes the table ready for rows of this schema. Raises what tells a user why it cannot be."""
    rows = from_spark(schema, table.format)
    table.is_tracked(rows)
    table.prepare(rows)
    state = table.state()
    topics = Topics(table.options.kafka)
    try:
        state = table.current_state(state, topics.ids(list(state.topics)))
    finally:
        topics.close()
    return table.job(rows, state)


def maintain(table: Table, *, whole: bool) -> None:
    """Small files together, old snapshots away. The batch is in already: what fails is tried again another time."""
    try:
        table.tidy()
        if whole:
            _log.info("the table %s: %s, %s", table.name, table.compact(), table.expire())
    except Exception as error:  # whatever it is, the batch must not be said to have failed
        _log.warning("the table %s could not be maintained this time: %s", table.name, error)


def writer(
    options: Mapping[str, str], schema: StructType, *, streaming: bool, overwrite: bool = False
) -> DataSourceStreamWriter | DataSourceWriter:
    """Raises SparkOptionError or TableError, before any row is read."""
    found = parse(options)
    if overwrite:
        what = "the output mode complete" if streaming else "the mode overwrite"
        raise SparkOptionError(f"{what} cannot be had: a table takes rows in, it gives none up; append is right")
    if found.batch_id is not None and (streaming or found.application_id is None):
        reason = "a stream numbers its batches itself" if streaming else "it needs an applicationId whose batch it is"
        raise SparkOptionError(f"batchId is {found.batch_id}: {reason}")
    sink = Sink(found, schema, streaming=streaming)
    return StreamWriter(sink) if streaming else BatchWriter(sink)
