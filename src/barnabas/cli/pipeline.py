"""``barnabas pipeline``: topics into tables and back, with Spark."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

from barnabas.cli.options import bootstrap_option, json_option, parse_pairs
from barnabas.cli.output import print_json, print_table
from barnabas.cli.pipeline_spark import need_spark
from barnabas.cli.pipeline_tables import archive, replay, verify
from barnabas.cli.pipeline_topics import compare, deadletters, hotkeys
from barnabas.cli.suggestions import CommandGroup
from barnabas.spark.pipelines.events import Choice, FlowEvent, FlowProgress, Outcome

QUIET_EVENTS = ("is QUEUED", "is PLANNING", "is STARTING", "is RUNNING")
"""Events of every flow: printed with ``--json`` only."""


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Topics into tables and back, with Spark.

    Examples:
      barnabas pipeline init orders-pipeline --topic orders
      barnabas pipeline run orders-pipeline
      barnabas pipeline archive orders --to delta:/data/orders
      barnabas pipeline verify orders --table delta:/data/orders

    Everything here needs Spark: pip install 'barnabas[spark]'.
    """


@pipeline.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--name", help="What the pipeline is called; the folder's name otherwise.")
@bootstrap_option
def init(folder: Path, topic: str, name: str | None, bootstrap: str) -> None:
    """Begin a project of Spark Declarative Pipelines that reads a topic.

    Examples:
      barnabas pipeline init orders-pipeline --topic orders
      cd orders-pipeline && barnabas pipeline run
    """
    from barnabas.spark.pipelines.project import ProjectExists, make  # noqa: PLC0415 - keeps --help fast

    try:
        made = make(folder, topic, bootstrap, name)
    except (ProjectExists, OSError) as error:
        raise click.ClickException(str(error)) from error
    for file in made.files:
        click.echo(f"wrote {file}")
    click.echo(f"Run it with: barnabas pipeline run {folder}")


@pipeline.command()
@click.argument("project", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--master", help="Where Spark runs: local[*], spark://…, yarn, k8s://…, sc://….  [default: local[*]]")
@click.option("--continuous", is_flag=True, help="Go on with what has come meanwhile, until stopped.")
@click.option("--every", "every_s", type=click.FloatRange(min=0), default=5.0, show_default=True, metavar="SECONDS",
              help="With --continuous: the pause between two passes.")  # fmt: skip
@click.option("--refresh", multiple=True, metavar="TABLE", help="Bring only this one up to date. May be repeated.")
@click.option("--full-refresh", multiple=True, metavar="TABLE", help="Make this one anew. May be repeated.")
@click.option("--full-refresh-all", is_flag=True, help="Make everything anew.")
@click.option("--dry-run", is_flag=True, help="Only check the definitions.")
@click.option("--set", "config", multiple=True, metavar="KEY=VALUE", callback=parse_pairs, help="A setting of Spark.")
@json_option
def run(
    project: Path | None,
    master: str | None,
    continuous: bool,
    every_s: float,
    refresh: tuple[str, ...],
    full_refresh: tuple[str, ...],
    full_refresh_all: bool,
    dry_run: bool,
    config: dict[str, str],
    as_json: bool,
) -> None:
    """Run a project of Spark Declarative Pipelines: ours or any other.

    PROJECT is its folder or its spark-pipeline.yml; without it, the folder we are in or one above it.

    Examples:
      barnabas pipeline run                              the project in this folder, once
      barnabas pipeline run orders-pipeline --continuous
      barnabas pipeline run --dry-run                    only check the definitions
      barnabas pipeline run --full-refresh orders_raw    make a table anew
      barnabas pipeline run --master spark://host:7077
    """
    if full_refresh_all and (refresh or full_refresh):
        raise click.UsageError("--full-refresh-all makes everything anew: leave out --refresh and --full-refresh")
    if continuous and dry_run:
        raise click.UsageError("--dry-run runs nothing, so it cannot be --continuous")
    chosen = Choice(refresh, full_refresh, full_refresh_all, dry_run)
    _run(project, master, config, chosen, every_s if continuous else None, _JsonPrinter() if as_json else _Printer())


for job in (archive, verify, replay, deadletters, hotkeys, compare):
    pipeline.add_command(job)


def _run(
    folder: Path | None,
    master: str | None,
    config: Mapping[str, str],
    chosen: Choice,
    every_s: float | None,
    printer: _Printer,
) -> None:
    """``every_s`` None runs once."""
    need_spark()
    from barnabas.spark.java import JavaMissing  # noqa: PLC0415 - needs Spark
    from barnabas.spark.pipelines import run as runs  # noqa: PLC0415
    from barnabas.spark.pipelines.definitions import PipelineError, open_project  # noqa: PLC0415

    try:
        project = open_project(folder)
        printer.begin(project.spec.name, master or "local[*]")
        spark = runs.connect(project, master, config)
    except (PipelineError, JavaMissing) as error:
        raise click.ClickException(str(error)) from error
    try:
        while True:
            outcome = runs.run_once(project, spark, chosen, printer.report)
            if every_s is None:
                printer.finish(outcome, dry=chosen.dry)
                return
            chosen = Choice(refresh=chosen.refresh or chosen.full_refresh)  # anew once, and then on from there
            time.sleep(every_s)
    except PipelineError as error:
        raise click.ClickException(str(error)) from error
    finally:
        spark.stop()


class _Printer:
    """For a person: a line for each batch that had rows, and whatever is out of the ordinary."""

    def begin(self, name: str, master: str) -> None:
        click.echo(f"{name}: starting Spark ({master})", err=True)

    def report(self, event: FlowProgress | FlowEvent) -> None:
        if isinstance(event, FlowEvent):
            if not event.message.rstrip(".").endswith(QUIET_EVENTS):
                click.secho(event.message, err=True, fg="red" if event.failed and sys.stderr.isatty() else None)
        elif event.rows:
            lag = "" if event.lag is None else f", {event.lag:,} behind"
            click.echo(
                f"{event.flow} batch {event.batch_id}: {event.rows:,} rows in {event.seconds:.1f} s, "
                f"{event.rows_per_second:,.0f} rows/s{lag}",
                err=True,
            )

    def finish(self, outcome: Outcome, *, dry: bool) -> None:
        if dry:
            click.echo("The definitions are in order.")
            return
        rows = [
            (flow, count, outcome.batches.get(flow, 0), outcome.lag.get(flow))
            for flow, count in sorted(outcome.rows.items())
        ]
        if rows:
            print_table(["flow", "rows", "batches", "behind"], rows)
        click.echo(f"Done in {outcome.seconds:.1f} s.")


class _JsonPrinter(_Printer):
    """For programs: a line of JSON for each thing that happens."""

    def begin(self, name: str, master: str) -> None:
        """Only results are printed."""

    def report(self, event: FlowProgress | FlowEvent) -> None:
        if isinstance(event, FlowEvent):
            line: dict[str, object] = {"event": event.message, "failed": event.failed}
        else:
            line = {
                "flow": event.flow,
                "batch": event.batch_id,
                "rows": event.rows,
                "seconds": event.seconds,
                "rows_per_second": round(event.rows_per_second, 1),
                "behind": event.lag,
            }
        click.echo(json.dumps(line))

    def finish(self, outcome: Outcome, *, dry: bool) -> None:
        print_json({"done": True, "dry_run": dry, "seconds": round(outcome.seconds, 3), "rows": outcome.rows})
