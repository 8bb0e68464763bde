"""Makes and runs projects of Spark Declarative Pipelines for ``barnabas pipeline init`` and ``run``."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from barnabas.cli.output import print_json, print_table
from barnabas.spark.pipelines.telling import Choice, FlowEvent, FlowProgress, Outcome

QUIET_EVENTS = ("is QUEUED", "is PLANNING", "is STARTING", "is RUNNING")
"""Events of every flow: printed with ``--json`` only."""


def need_spark() -> None:
    """Spark is an extra of the package: say so before anything fails for want of it."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")  # of versions of pandas
    try:
        import pyspark  # noqa: F401, PLC0415 -- whether it is there is the question
    except ImportError:
        raise click.ClickException("Spark is not installed. Try: pip install 'barnabas[spark]'") from None


def init(folder: Path, topic: str, bootstrap: str, name: str | None) -> None:
    from barnabas.spark.pipelines.project import ProjectExists, make  # noqa: PLC0415 - keeps --help fast

    try:
        made = make(folder, topic, bootstrap, name)
    except (ProjectExists, OSError) as error:
        raise click.ClickException(str(error)) from error
    for file in made.files:
        click.echo(f"wrote {file}")
    click.echo(f"Run it with: barnabas pipeline run {folder}")


def run(
    given: Path | None,
    master: str | None,
    config: Mapping[str, str],
    choice: Mapping[str, Any],
    every_s: float | None,
    as_json: bool,
) -> None:
    """``every_s`` None runs once."""
    need_spark()
    from barnabas.spark.java import JavaMissing  # noqa: PLC0415 - needs Spark
    from barnabas.spark.pipelines import running  # noqa: PLC0415
    from barnabas.spark.pipelines.definitions import PipelineError, open_project  # noqa: PLC0415

    try:
        project = open_project(given)
        if not as_json:
            click.echo(f"{project.spec.name}: starting Spark ({master or 'local[*]'})", err=True)
        spark = running.connect(project, master, config)
    except (PipelineError, JavaMissing) as error:
        raise click.ClickException(str(error)) from error
    teller = _JsonTeller() if as_json else _Teller()
    chosen = Choice(**choice)
    try:
        while True:
            outcome = running.run_once(project, spark, chosen, teller.tell)
            if every_s is None:
                teller.finish(outcome, dry=chosen.dry)
                return
            chosen = Choice(refresh=chosen.refresh or chosen.full_refresh)  # anew once, and then on from there
            time.sleep(every_s)
    except PipelineError as error:
        raise click.ClickException(str(error)) from error
    finally:
        spark.stop()


class _Teller:
    """For a person: a line for each batch that had rows, and whatever is out of the ordinary."""

    def tell(self, told: FlowProgress | FlowEvent) -> None:
        if isinstance(told, FlowEvent):
            if not told.message.rstrip(".").endswith(QUIET_EVENTS):
                click.secho(told.message, err=True, fg="red" if told.failed and sys.stderr.isatty() else None)
        elif told.rows:
            lag = "" if told.lag is None else f", {told.lag:,} behind"
            click.echo(
                f"{told.flow} batch {told.batch_id}: {told.rows:,} rows in {told.seconds:.1f} s, "
                f"{told.rows_per_second:,.0f} rows/s{lag}",
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


class _JsonTeller:
    """For programs: a line of JSON for each thing that happens."""

    def tell(self, told: FlowProgress | FlowEvent) -> None:
        if isinstance(told, FlowEvent):
            line: dict[str, object] = {"event": told.message, "failed": told.failed}
        else:
            line = {
                "flow": told.flow,
                "batch": told.batch_id,
                "rows": told.rows,
                "seconds": told.seconds,
                "rows_per_second": round(told.rows_per_second, 1),
                "behind": told.lag,
            }
        click.echo(json.dumps(line))

    def finish(self, outcome: Outcome, *, dry: bool) -> None:
        print_json({"done": True, "dry_run": dry, "seconds": round(outcome.seconds, 3), "rows": outcome.rows})
