"""The jobs of ``barnabas pipeline``: archive, verify, replay, deadletters, hotkeys, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from barnabas.cli.options import bootstrap_option, json_option, parse_pairs, time_option

TABLE = "TABLE is delta:FOLDER, parquet:FOLDER or iceberg:WAREHOUSE#NAMESPACE.NAME."


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
@bootstrap_option
@json_option
def archive(**given: Any) -> None:
    """Bring topics into a table, exactly once."""
    from barnabas.cli import pipeline_runner  # noqa: PLC0415 - keeps --help fast

    pipeline_runner.archive(**given)


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
@bootstrap_option
@json_option
def verify(**given: Any) -> None:
    """Prove that a table has what the topic has: no record missing, none twice, the same contents."""
    from barnabas.cli import pipeline_runner  # noqa: PLC0415 - keeps --help fast

    pipeline_runner.verify(**given)


@click.command(
    epilog=f"""
\b
Examples:
  barnabas pipeline replay delta:/data/orders --to orders-again --rate 5000
  barnabas pipeline replay orders --to orders-test --since -1h
  barnabas pipeline replay parquet:/data/orders --topic orders --to orders-again --offsets '{{"0": 1200}}'

SOURCE is a topic, or a table. {TABLE} Stopped with Ctrl-C, it says where to go on. Needs no Spark.
"""
)
@click.argument("source")
@click.option("--to", required=True, metavar="TOPIC", help="Where the records go.")
@click.option("--topic", help="Of a table that holds several: the one to replay.")
@period_options
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="RECORDS/S", help="No faster than this.")
@click.option("--offsets", metavar="JSON", help="Where to begin, by partition: what a run that was stopped has told.")
@click.option(
    "--keep-partition", is_flag=True, help="Into the partitions they were in, not those that their keys give."
)
@click.option("--keep-time", is_flag=True, help="With the timestamps they had.")
@click.option(
    "--compression", default="lz4", show_default=True, type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"])
)
@table_option_option
@bootstrap_option
@json_option
def replay(**given: Any) -> None:
    """Send the records of a table or a topic to a topic, in order per key."""
    from barnabas.cli import pipeline_runner  # noqa: PLC0415 - keeps --help fast

    pipeline_runner.replay(**given)


@click.command(
    epilog="""
\b
Examples:
  barnabas pipeline deadletters orders-dead --format json --schema 'id STRING, amount DOUBLE' --dry-run
  barnabas pipeline deadletters orders-dead --format avro --schema @order.avsc --to orders
  barnabas pipeline deadletters orders-dead --format avro --schema @order.avsc --framing confluent \\
      --writer-schema 7=@order.avsc --writer-schema 3=@order-old.avsc

A letter goes to the topic that its headers name, unless --to names another. What still cannot be decoded is put at the
end of the dead-letter topic again, with the number of attempts.
"""
)
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
@bootstrap_option
@json_option
def deadletters(**given: Any) -> None:
    """Look at dead letters again, and send back what can be decoded now."""
    from barnabas.cli import pipeline_runner  # noqa: PLC0415 - keeps --help fast

    pipeline_runner.deadletters(**given)


@click.command(
    epilog="""
\b
Examples:
  barnabas pipeline hotkeys clicks
  barnabas pipeline hotkeys clicks --since -15m --top 10 --json
"""
)
@click.argument("topic")
@period_options
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many keys to show.")
@master_option
@bootstrap_option
@json_option
def hotkeys(**given: Any) -> None:
    """Show the heaviest keys of a topic, and how evenly its partitions are filled."""
    from barnabas.cli import pipeline_runner  # noqa: PLC0415 - keeps --help fast

    pipeline_runner.hotkeys(**given)


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
@bootstrap_option
@json_option
def compare(**given: Any) -> None:
    """Say what is missing, extra or different between two topics, or a topic and a table."""
    from barnabas.cli import pipeline_runner  # noqa: PLC0415 - keeps --help fast

    pipeline_runner.compare(**given)


COMMANDS = (archive, verify, replay, deadletters, hotkeys, compare)


def read_schema(text: str) -> str:
    """``@FILE`` is the file's contents."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"{text[1:]}: {error.strerror}", param_hint="--schema") from error
