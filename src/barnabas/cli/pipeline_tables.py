"""``barnabas pipeline`` archive, verify and replay: topics into tables and back."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import server_options
from barnabas.cli.output import print_json, print_table
from barnabas.cli.pipeline_spark import (
    TABLE,
    Stopped,
    check_topic,
    master_option,
    period_options,
    sentences,
    spark_until_stopped,
    table_option_option,
)

if TYPE_CHECKING:
    from barnabas.spark.jobs.archive import BatchDone
    from barnabas.spark.jobs.replay import Replayed
    from barnabas.spark.verify import Progress

_RANGE = re.compile(r"(\d+):(\d+)-(\d+)")


@click.command(
    epilog=f"""
\b
Examples:
  barnabas pipeline archive orders --to delta:/data/orders
  barnabas pipeline archive orders --to iceberg:/warehouse#sales.orders --follow
  barnabas pipeline archive orders --to delta:/data/orders --table-option 'partitionBy=day(timestamp)'
  barnabas pipeline archive clicks --to parquet:/data/clicks --table-option partitionBy=partition

{TABLE} Each batch is one commit: run again, or killed at any moment, the job adds what is missing and nothing twice.
Commits of Delta and Iceberg carry the offsets they hold, so this is true with a new checkpoint as well. A Parquet
folder is written by Spark's own sink and needs the checkpoint that it was begun with.
"""
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--to", "table", required=True, metavar="TABLE", help="The table; it is made where there is none.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until stopped.")
@click.option("--every", "every_s", type=click.FloatRange(min=0), default=10.0, show_default=True, metavar="SECONDS",
              help="With --follow: how often a batch is begun.")  # fmt: skip
@click.option("--max-per-batch", type=click.IntRange(min=1), default=2_000_000, show_default=True, metavar="RECORDS")
@click.option("--checkpoint", type=click.Path(), help="Where Spark keeps its place.  [default: beside the table]")
@click.option("--no-headers", is_flag=True, help="Leave the headers of records out.")
@table_option_option
@master_option
@server_options
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
    """Bring topics into a table, exactly once."""
    with sentences():
        from barnabas.spark.jobs import archive as job  # noqa: PLC0415 - needs Spark
        from barnabas.spark.tables.formats import open_readable, table_options  # noqa: PLC0415

        options = table_options(table, table_given)
        open_readable(options).close()  # what is wrong with them is told before Spark starts
        for topic in topics:
            check_topic(bootstrap, topic)

        def report(done: BatchDone) -> None:
            rate = done.rows / done.seconds if done.seconds else 0.0
            behind = "" if done.lag is None else f", {done.lag:,} behind"
            if not as_json:
                click.echo(
                    f"batch {done.batch_id}: {done.rows:,} rows in {done.seconds:.1f} s, {rate:,.0f} rows/s{behind}",
                    err=True,
                )

        with spark_until_stopped("archive", master, as_json) as (spark, stopping):
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
            done = job.archive(spark, wanted, report, lambda: stopping.is_asked)
    if as_json:
        print_json({"rows": done.rows, "batches": done.batches, "seconds": round(done.seconds, 3), "behind": done.lag})
    else:
        click.echo(f"{done.rows:,} rows in {done.batches} commits to {table}, {done.seconds:.1f} s.")
    if stopping.is_asked and not follow:
        raise Stopped


@click.command(
    epilog=f"""
\b
Examples:
  barnabas pipeline verify orders --table delta:/data/orders
  barnabas pipeline verify orders --table delta:/data/orders --range 0:1000-2000 --json

{TABLE} The exit code is 1 where anything is missing, twice or different. Needs no Spark.
"""
)
@click.argument("topic")
@click.option("--table", required=True, metavar="TABLE", help="The table that the topic was archived to.")
@click.option(
    "--range", "ranges", multiple=True, metavar="PARTITION:START-END", help="Only these offsets. May be repeated."
)
@click.option("--whole-topic", is_flag=True, help="Everything that the topic holds now must be in the table.")
@click.option("--offline", is_flag=True, help="Ask no broker: check the table against its own commits.")
@table_option_option
@server_options
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
    """Prove that a table has what the topic has: no record missing, none twice, the same contents."""
    wanted = _ranges(ranges)
    with sentences():
        from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast
        from barnabas.spark import verify as job  # noqa: PLC0415
        from barnabas.spark.tables.formats import open_readable, table_options  # noqa: PLC0415

        def show(done: Progress) -> None:
            if sys.stderr.isatty():
                click.echo(f"\r{done.partition}: {done.done:,} of {done.total:,} offsets", err=True, nl=False)

        with open_readable(table_options(table, table_given)) as opened:
            if not opened.exists():
                raise click.ClickException(f"there is no table at {table}")
            if offline:
                report = job.verify(opened, None, topic, wanted, on_progress=show)
            else:
                with Client(bootstrap) as client:
                    report = job.verify(opened, client, topic, wanted, whole_topic=whole_topic, on_progress=show)
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


@click.command(
    epilog=f"""
\b
Examples:
  barnabas pipeline replay delta:/data/orders --to orders-again --rate 5000
  barnabas pipeline replay orders --to orders-test --since -1h
  barnabas pipeline replay parquet:/data/orders --topic orders --to orders-again

SOURCE is a topic, or a table. {TABLE} Records go in transactions, with how far the source was read: stopped or killed
at any moment, the same command goes on there, and consumers with read_committed see each record once. A second run at
the same time ends the first. Needs no Spark.
"""
)
@click.argument("source")
@click.option("--to", required=True, metavar="TOPIC", help="Where the records go.")
@click.option("--topic", help="Of a table that holds several: the one to replay.")
@period_options
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="RECORDS/S", help="No faster than this.")
@click.option(
    "--keep-partition", is_flag=True, help="Into the partitions they were in, not those that their keys give."
)
@click.option("--keep-time", is_flag=True, help="With the timestamps they had.")
@click.option(
    "--compression", default="lz4", show_default=True, type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"])
)
@table_option_option
@server_options
def replay(
    source: str,
    to: str,
    topic: str | None,
    since: int | None,
    until: int | None,
    rate: float | None,
    keep_partition: bool,
    keep_time: bool,
    compression: str,
    table_given: Mapping[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send the records of a table or a topic to a topic, in order per key."""
    with sentences():
        from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast
        from barnabas.spark.jobs import replay as job  # noqa: PLC0415
        from barnabas.spark.jobs import rows  # noqa: PLC0415
        from barnabas.spark.options import parse_sink  # noqa: PLC0415
        from barnabas.spark.tables.formats import is_table, open_readable, table_options  # noqa: PLC0415

        period = rows.Period(since, until)
        given = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": to,
            "kafka.compression.type": compression,
            "includeHeaders": "true",
            "includeTimestamp": str(keep_time).lower(),
        }
        name = job.name_of(source, topic, to, since, until, keep_partition)
        with Client(bootstrap) as client:
            client.topic(to)  # told before anything is read
            if source == to:
                raise click.UsageError("a topic cannot be replayed into itself: it would never end")
            table = open_readable(table_options(source, table_given)) if is_table(source) else None
            bounds = rows.bounds_of_table(table, topic) if table else rows.bounds_of_topic(client, source, period)

            def report(count: int) -> None:
                if sys.stderr.isatty():
                    click.echo(f"\r{count:,} of at most {total:,} records", err=True, nl=False)

            with job.Replay(parse_sink(given), to, name) as replaying:
                if replaying.reached and not as_json:
                    click.echo("Going on where the last run was cut off.", err=True)
                bounds = rows.after(bounds, replaying.reached)
                total = sum(end - start for start, end in bounds.values())
                pieces = rows.of_table(table, bounds, period) if table else rows.of_topic(client, bounds, period)
                done = replaying.run(
                    pieces, per_second=rate, keep_partition=keep_partition, keep_time=keep_time, on_rows=report
                )
    period_text = "".join(f" --{key} {ms}" for key, ms in (("since", since), ("until", until)) if ms is not None)
    _print_replayed(done, to, period_text, as_json)


def _checkpoint(options: Mapping[str, str], topics: tuple[str, ...]) -> str:
    place = options.get("path", "").rstrip("/")
    if not place:
        raise click.UsageError("--checkpoint is needed where the table has no folder of its own name")
    name = options.get("table") or place.rpartition("/")[2]
    return f"{place.rpartition('/')[0] or '.'}/.checkpoints/{name}/{'+'.join(topics)}"


def _ranges(texts: tuple[str, ...]) -> dict[int, tuple[int, int]] | None:
    found: dict[int, tuple[int, int]] = {}
    for text in texts:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"{text!r} is not PARTITION:START-END", param_hint="--range")
        found[int(match[1])] = int(match[2]), int(match[3])
    return found or None


def _print_replayed(done: Replayed, to: str, period: str, as_json: bool) -> None:
    if as_json:
        offsets = {str(partition.partition): offset for partition, offset in done.next_offsets.items()}
        print_json(
            {"rows": done.rows, "seconds": round(done.seconds, 3), "finished": done.finished, "offsets": offsets}
        )
    else:
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)
        click.echo(f"{done.rows:,} records to {to}, {done.seconds:.1f} s.")
        if not done.finished:
            click.echo(f"Stopped. The same command goes on from there{', with' if period else ''}{period}.")
    if not done.finished:
        sys.exit(130)
