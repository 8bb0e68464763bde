"""Runs the jobs of ``barnabas pipeline`` and prints what they did."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from barnabas.cli.output import json_bytes, print_json, print_table, safe_text, size_text
from barnabas.cli.pipeline_jobs import read_schema
from barnabas.cli.pipeline_project import need_spark
from barnabas.cli.pipeline_stopping import Stopped, Stopping
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.jobs.archive import BatchDone
    from barnabas.spark.jobs.hotkeys import HotKey
    from barnabas.spark.verify import Progress

_RANGE = re.compile(r"(\d+):(\d+)-(\d+)")


@contextmanager
def _sentences() -> Iterator[None]:
    """What users' options, tables and Java can do wrong becomes one sentence."""
    need_spark()
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from barnabas.spark.client_settings import SparkOptionError  # noqa: PLC0415 - needs pyarrow
    from barnabas.spark.java import JavaMissing  # noqa: PLC0415
    from barnabas.spark.jobs.archive import JobFailed, reason_of  # noqa: PLC0415
    from barnabas.spark.tables.errors import TableError  # noqa: PLC0415

    try:
        yield
    except (SparkOptionError, TableError, JavaMissing, JobFailed) as error:
        raise click.ClickException(str(error)) from error
    except PySparkException as error:
        raise click.ClickException(reason_of(error)) from error


@contextmanager
def _spark(name: str, master: str | None, as_json: bool) -> Iterator[SparkSession]:
    """For jobs that SIGINT cancels."""
    with _spark_until_stopped(name, master, as_json) as (spark, stopping):
        stopping.take_over(cancel=spark.interruptAll)
        try:
            yield spark
        except Exception:
            if stopping.is_asked:  # what Spark says about jobs that were cancelled
                raise Stopped from None
            raise


@contextmanager
def _spark_until_stopped(name: str, master: str | None, as_json: bool) -> Iterator[tuple[SparkSession, Stopping]]:
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


def archive(
    topics: tuple[str, ...],
    table: str,
    follow: bool,
    every_s: float,
    max_per_batch: int,
    checkpoint: str | None,
    no_headers: bool,
    table_given: Mapping[str, str],
    master: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    with _sentences():
        from barnabas.spark.jobs import archive as job  # noqa: PLC0415 - needs Spark
        from barnabas.spark.jobs.naming import table_options  # noqa: PLC0415
        from barnabas.spark.tables.opening import open_readable  # noqa: PLC0415

        options = table_options(table, table_given)
        open_readable(options).close()  # what is wrong with them is told before Spark starts
        for topic in topics:
            _check_there(bootstrap, topic)

        def tell(done: BatchDone) -> None:
            rate = done.rows / done.seconds if done.seconds else 0.0
            behind = "" if done.lag is None else f", {done.lag:,} behind"
            if not as_json:
                click.echo(
                    f"batch {done.batch_id}: {done.rows:,} rows in {done.seconds:.1f} s, {rate:,.0f} rows/s{behind}",
                    err=True,
                )

        with _spark_until_stopped("archive", master, as_json) as (spark, stopping):
            wanted = job.Archive(
                topics=topics,
                servers=bootstrap,
                table=options,
                checkpoint=checkpoint or _checkpoint(options, topics),
                follow=follow,
                every_s=every_s,
                max_per_batch=max_per_batch,
                headers=not no_headers,
            )
            done = job.archive(spark, wanted, tell, lambda: stopping.is_asked)
    if as_json:
        print_json({"rows": done.rows, "batches": done.batches, "seconds": round(done.seconds, 3), "behind": done.lag})
    else:
        click.echo(f"{done.rows:,} rows in {done.batches} commits to {table}, {done.seconds:.1f} s.")
    if stopping.is_asked and not follow:
        raise Stopped


def _checkpoint(options: Mapping[str, str], topics: tuple[str, ...]) -> str:
    place = options.get("path", "").rstrip("/")
    if not place:
        raise click.UsageError("--checkpoint is needed where the table has no folder of its own name")
    name = options.get("table") or place.rpartition("/")[2]
    return f"{place.rpartition('/')[0] or '.'}/.checkpoints/{name}/{'+'.join(topics)}"


def verify(
    topic: str,
    table: str,
    ranges: tuple[str, ...],
    whole_topic: bool,
    offline: bool,
    table_given: Mapping[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    wanted = _ranges(ranges)
    with _sentences():
        from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast
        from barnabas.spark import verify as job  # noqa: PLC0415
        from barnabas.spark.jobs.naming import table_options  # noqa: PLC0415
        from barnabas.spark.tables.opening import open_readable  # noqa: PLC0415

        def tell(done: Progress) -> None:
            if sys.stderr.isatty():
                click.echo(f"\r{done.partition}: {done.done:,} of {done.total:,} offsets", err=True, nl=False)

        with open_readable(table_options(table, table_given)) as opened:
            if not opened.exists():
                raise click.ClickException(f"there is no table at {table}")
            if offline:
                report = job.verify(opened, None, topic, wanted, on_progress=tell)
            else:
                with Client(bootstrap) as client:
                    report = job.verify(opened, client, topic, wanted, whole_topic=whole_topic, on_progress=tell)
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)
    if as_json:
        columns = [name.replace(" ", "_") for name in report.HEADER]
        rows = [dict(zip(columns, row, strict=True)) for row in report.rows()]
        print_json({"ok": report.ok, "partitions": rows, "problems": report.problems, "notes": report.notes})
    else:
        print_table(report.HEADER, report.rows(), title=f"{table} and topic {topic}")
        for line in [*report.notes, *report.problems]:
            click.echo(line)
        click.echo("Everything is there, once." if report.ok else "The table and the topic do not agree.")
    if not report.ok or not report.partitions:
        sys.exit(1)


def _ranges(texts: tuple[str, ...]) -> dict[int, tuple[int, int]] | None:
    found: dict[int, tuple[int, int]] = {}
    for text in texts:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"{text!r} is not PARTITION:START-END", param_hint="--range")
        found[int(match[1])] = int(match[2]), int(match[3])
    return found or None


def replay(
    source: str,
    to: str,
    topic: str | None,
    since: int | None,
    until: int | None,
    rate: float | None,
    offsets: str | None,
    keep_partition: bool,
    keep_time: bool,
    compression: str,
    table_given: Mapping[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    with _sentences():
        from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast
        from barnabas.spark.jobs import replay as job  # noqa: PLC0415
        from barnabas.spark.jobs import rows  # noqa: PLC0415
        from barnabas.spark.jobs.naming import is_table, table_options  # noqa: PLC0415
        from barnabas.spark.options import parse_sink  # noqa: PLC0415
        from barnabas.spark.tables.opening import open_readable  # noqa: PLC0415

        period = rows.Period(since, until)
        given = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": to,
            "kafka.compression.type": compression,
            "includeHeaders": "true",
            "includeTimestamp": str(keep_time).lower(),
        }
        sink = parse_sink(given)
        with Client(bootstrap) as client:
            client.topic(to)  # told before anything is read
            if is_table(source):
                table = open_readable(table_options(source, table_given))
                bounds = _begin_at(rows.bounds_of_table(table, topic), offsets)
                pieces = rows.of_table(table, bounds, period)
            else:
                if source == to:
                    raise click.UsageError("a topic cannot be replayed into itself: it would never end")
                bounds = _begin_at(rows.bounds_of_topic(client, source, period), offsets)
                pieces = rows.of_topic(client, bounds, period)
            total = sum(end - start for start, end in bounds.values())

            def tell(count: int) -> None:
                if sys.stderr.isatty():
                    click.echo(f"\r{count:,} of at most {total:,} records", err=True, nl=False)

            with Client(bootstrap) as writing:
                done = job.replay(
                    writing,
                    pieces,
                    sink,
                    per_second=rate,
                    keep_partition=keep_partition,
                    keep_time=keep_time,
                    on_rows=tell,
                )
    _tell_replayed(done.rows, done.seconds, done.finished, done.next_offsets, to, as_json)


def _begin_at(
    bounds: dict[TopicPartition, tuple[int, int]], offsets: str | None
) -> dict[TopicPartition, tuple[int, int]]:
    if offsets is None:
        return bounds
    try:
        given = {int(partition): int(offset) for partition, offset in json.loads(offsets).items()}
    except (ValueError, AttributeError, TypeError):
        raise click.BadParameter(f'{offsets!r} is not like {{"0": 1200}}', param_hint="--offsets") from None
    begun = {p: (max(start, given.get(p.partition, start)), end) for p, (start, end) in bounds.items()}
    return {p: (start, end) for p, (start, end) in begun.items() if start < end}


def _tell_replayed(
    rows: int, seconds: float, finished: bool, next_offsets: Mapping[TopicPartition, int], to: str, as_json: bool
) -> None:
    resume = {str(partition.partition): offset for partition, offset in next_offsets.items()}
    if as_json:
        print_json({"rows": rows, "seconds": round(seconds, 3), "finished": finished, "offsets": resume})
    else:
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)
        click.echo(f"{rows:,} records to {to}, {seconds:.1f} s.")
        if not finished:
            click.echo(f"Stopped. Go on with: --offsets '{json.dumps(resume)}'")
    if not finished:
        sys.exit(130)


def deadletters(
    letters: str,
    form: str,
    schema: str,
    framing: str,
    writer_schemas: Mapping[str, str],
    to: str | None,
    group: str | None,
    drop: bool,
    dry_run: bool,
    master: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    with _sentences():
        from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast
        from barnabas.spark.jobs import deadletters as job  # noqa: PLC0415

        validation = job.Validation(form, read_schema(schema), framing, _writer_schemas(framing, writer_schemas))
        wanted = job.Redrive(
            bootstrap, letters, to, validation, group or f"barnabas-deadletters-{letters}", dry_run, drop
        )
        with Client(bootstrap) as client:
            client.topic(letters)
            with _spark("deadletters", master, as_json) as spark:
                done = job.redrive(spark, client, wanted)
    if as_json:
        reasons = [{"reason": reason, "letters": count} for reason, count in done.reasons]
        print_json({"read": done.read, "good": done.good, "bad": done.bad, "dry_run": dry_run, "reasons": reasons})
        return
    if done.reasons:
        print_table(["letters", "reason"], [(count, reason) for reason, count in done.reasons])
    kept = "dropped" if drop else "kept"
    sent, stay = ("would be sent back", f"would be {kept}") if dry_run else ("sent back", kept)
    click.echo(f"{done.read:,} letters: {done.good:,} {sent}, {done.bad:,} {stay}.")


def _writer_schemas(framing: str, given: Mapping[str, str]) -> dict[int, str] | None:
    """By id, as ``--writer-schema`` gives them."""
    if framing == "none":
        if given:
            raise click.UsageError("--writer-schema is for --framing confluent")
        return None
    wrong = next((key for key in given if not key.isdigit()), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not a schema's number", param_hint="--writer-schema")
    if not given:
        raise click.UsageError("--framing confluent needs --writer-schema ID=SCHEMA for each id: values name theirs")
    return {int(key): read_schema(schema) for key, schema in given.items()}


def hotkeys(
    topic: str,
    since: int | None,
    until: int | None,
    top: int,
    master: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    with _sentences():
        _check_there(bootstrap, topic)
        from barnabas.spark.jobs import hotkeys as job  # noqa: PLC0415 - needs Spark

        with _spark("hotkeys", master, as_json) as spark:
            found = job.hotkeys(spark, _source(bootstrap, topic, since, until), top)
    if as_json:
        print_json(
            {
                "messages": found.messages,
                "keys": found.keys,
                "skew": round(found.skew, 3),
                "hottest": [_hot(key) for key in found.hottest],
                "partitions": [load._asdict() for load in found.partitions],
            }
        )
        return
    rows = [
        (safe_text(key.key), key.messages, f"{key.share:.1%}", size_text(key.size), key.partitions)
        for key in found.hottest
    ]
    print_table(["key", "messages", "share", "size", "partitions"], rows, title=f"The heaviest keys of {topic}")
    loads = [(load.partition, load.messages, size_text(load.size), load.keys) for load in found.partitions]
    print_table(["partition", "messages", "size", "keys"], loads, title="Partitions")
    click.echo(
        f"{found.messages:,} messages, {found.keys:,} keys; the fullest partition has {found.skew:.2f} x the mean."
    )


def _hot(key: HotKey) -> dict[str, object]:
    return {**json_bytes("key", key.key), **{name: value for name, value in key._asdict().items() if name != "key"}}


def compare(
    left: str,
    right: str,
    by: str | None,
    samples: int,
    right_server: str | None,
    since: int | None,
    until: int | None,
    table_given: Mapping[str, str],
    master: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    with _sentences():
        from barnabas.spark.jobs import compare as job  # noqa: PLC0415 - needs Spark
        from barnabas.spark.jobs.naming import is_table, table_options  # noqa: PLC0415
        from barnabas.spark.tables.opening import open_readable  # noqa: PLC0415

        if is_table(left):
            raise click.UsageError("LEFT is a topic: a table can stand on the right")
        _check_there(bootstrap, left)
        options = table_options(right, table_given) if is_table(right) else None
        if options is not None:
            open_readable(options).close()
            if since is not None or until is not None:
                raise click.UsageError("--since and --until are for two topics: a table is compared as far as it goes")
        else:
            _check_there(right_server or bootstrap, right)
        with _spark("compare", master, as_json) as spark:
            one = job.topic(spark, _source(bootstrap, left, since, until))
            if options is not None:
                other = job.table(spark, options, left)
            else:
                other = job.topic(spark, _source(right_server or bootstrap, right, since, until))
            found = job.compare(one, other, by or ("offset" if options is not None else "content"), samples)
    if as_json:
        shown = [
            {"kind": s.kind, "where": s.where, **json_bytes("left", s.left), **json_bytes("right", s.right)}
            for s in found.samples
        ]
        print_json({**found._asdict(), "samples": shown, "same": found.same})
    else:
        counts = (found.left, found.right, found.missing, found.extra, found.different)
        title = f"{left} and {right}, by {found.by}"
        print_table(["left", "right", "missing", "extra", "different"], [counts], title=title)
        for sample in found.samples:
            click.echo(f"{sample.kind}: {sample.where}: {safe_text(sample.left)} | {safe_text(sample.right)}")
        click.echo("They are the same." if found.same else "They differ.")
    if not found.same:
        sys.exit(1)


def _check_there(bootstrap: str, topic: str) -> None:
    """Reports a mistyped name before Spark starts."""
    from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast

    with Client(bootstrap) as client:
        client.topic(topic)


def _source(bootstrap: str, topic: str, since: int | None, until: int | None) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    if since is not None:
        options |= {"startingTimestamp": str(since), "startingOffsetsByTimestampStrategy": "latest"}
    if until is not None:
        options["endingTimestamp"] = str(until)
    return options
