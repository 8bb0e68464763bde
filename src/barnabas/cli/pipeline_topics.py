"""``barnabas pipeline`` deadletters, hotkeys and compare: what is in topics."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import parse_pairs, server_options
from barnabas.cli.output import json_bytes, print_json, print_table, safe_text, size_text
from barnabas.cli.pipeline_spark import (
    TABLE,
    check_topic,
    master_option,
    period_options,
    sentences,
    spark_session,
    table_option_option,
)
from barnabas.cli.suggestions import Command

if TYPE_CHECKING:
    from barnabas.spark.jobs.hotkeys import HotKey


@click.command(cls=Command)
@click.argument("letters", metavar="DEADLETTER_TOPIC")
@click.option("--format", "form", required=True, type=click.Choice(["json", "avro"]))
@click.option(
    "--schema", required=True, metavar="SCHEMA", help="Spark's DDL for json, Avro's JSON for avro; @FILE reads it."
)
@click.option("--framing", default="none", show_default=True, type=click.Choice(["none", "confluent"]),
              help="Of Avro: what stands before a value.")  # fmt: skip
@click.option(
    "--writer-schema",
    "writer_schemas",
    multiple=True,
    metavar="ID=SCHEMA",
    callback=parse_pairs,
    help="Of framing confluent: the schema of an id; @FILE reads it. May be repeated.",
)
@click.option("--to", metavar="TOPIC", help="Where good letters go.")
@click.option("--group", help="Under which name the job keeps its place.  [default: barnabas-deadletters-TOPIC]")
@click.option("--drop", is_flag=True, help="Do not keep what still cannot be decoded.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@master_option
@server_options
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
    """Look at dead letters again, and send back what can be decoded now.

    Examples:
      barnabas pipeline deadletters orders-dead --format json --schema 'id STRING, amount DOUBLE' --dry-run
      barnabas pipeline deadletters orders-dead --format avro --schema @order.avsc --to orders
      barnabas pipeline deadletters orders-dead --format avro --schema @order.avsc --framing confluent \\
          --writer-schema 7=@order.avsc --writer-schema 3=@order-old.avsc

    A letter goes to the topic that its headers name, unless --to names another. What still cannot be decoded is put at
    the end of the dead-letter topic again, with the number of attempts.
    """
    with sentences():
        from barnabas.client.wire import Client  # noqa: PLC0415 - keeps --help fast
        from barnabas.spark.jobs import deadletters as job  # noqa: PLC0415

        validation = job.Validation(form, _read_schema(schema), framing, _writer_schemas(framing, writer_schemas))
        wanted = job.Redrive(
            bootstrap, letters, to, validation, group or f"barnabas-deadletters-{letters}", dry_run, drop
        )
        with Client(bootstrap) as client:
            client.topic(letters)
            with spark_session("deadletters", master, as_json) as spark:
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


@click.command(cls=Command)
@click.argument("topic")
@period_options
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many keys to show.")
@master_option
@server_options
def hotkeys(
    topic: str,
    since: int | None,
    until: int | None,
    top: int,
    master: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show the heaviest keys of a topic, and how evenly its partitions are filled.

    Examples:
      barnabas pipeline hotkeys clicks
      barnabas pipeline hotkeys clicks --since -15m --top 10 --json
    """
    with sentences():
        check_topic(bootstrap, topic)
        from barnabas.spark.jobs import hotkeys as job  # noqa: PLC0415 - needs Spark

        with spark_session("hotkeys", master, as_json) as spark:
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


@click.command(
    epilog=f"""
\b
Examples:
  barnabas pipeline compare orders orders-copy
  barnabas pipeline compare orders orders-copy --by key --right-server other:9092
  barnabas pipeline compare orders delta:/data/orders

LEFT is a topic, RIGHT a topic or a table. {TABLE} By default two topics are compared by content, and a table by offset.
The exit code is 1 where they differ.
"""
)
@click.argument("left")
@click.argument("right")
@click.option("--by", type=click.Choice(["offset", "key", "content"]), help="What makes two records one.")
@click.option("--samples", type=click.IntRange(min=0), default=5, show_default=True, help="Differences to show.")
@click.option("--right-server", metavar="HOST:PORT", help="Where the right topic is, if not at --bootstrap-server.")
@period_options
@table_option_option
@master_option
@server_options
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
    """Say what is missing, extra or different between two topics, or a topic and a table."""
    with sentences():
        from barnabas.spark.jobs import compare as job  # noqa: PLC0415 - needs Spark
        from barnabas.spark.tables.formats import is_table, open_readable, table_options  # noqa: PLC0415

        if is_table(left):
            raise click.UsageError("LEFT is a topic: a table can stand on the right")
        check_topic(bootstrap, left)
        options = table_options(right, table_given) if is_table(right) else None
        if options is not None:
            open_readable(options).close()
            if since is not None or until is not None:
                raise click.UsageError("--since and --until are for two topics: a table is compared as far as it goes")
        else:
            check_topic(right_server or bootstrap, right)
        with spark_session("compare", master, as_json) as spark:
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
    return {int(key): _read_schema(schema) for key, schema in given.items()}


def _hot(key: HotKey) -> dict[str, object]:
    return {**json_bytes("key", key.key), **{name: value for name, value in key._asdict().items() if name != "key"}}


def _source(bootstrap: str, topic: str, since: int | None, until: int | None) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    if since is not None:
        options |= {"startingTimestamp": str(since), "startingOffsetsByTimestampStrategy": "latest"}
    if until is not None:
        options["endingTimestamp"] = str(until)
    return options


def _read_schema(text: str) -> str:
    """``@FILE`` is the file's contents."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"{text[1:]}: {error.strerror}", param_hint="--schema") from error
