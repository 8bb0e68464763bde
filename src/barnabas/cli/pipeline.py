"""``barnabas pipeline``: topics into tables and back, with Spark."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli import pipeline_jobs
from barnabas.cli.options import bootstrap_option, json_option, parse_pairs

EXAMPLES = """
\b
Examples:
  barnabas pipeline init orders-pipeline --topic orders
  barnabas pipeline run orders-pipeline
  barnabas pipeline archive orders --to delta:/data/orders
  barnabas pipeline verify orders --table delta:/data/orders

Everything here needs Spark: pip install 'barnabas[spark]'.
"""


@click.group(epilog=EXAMPLES)
def pipeline() -> None:
    """Topics into tables and back, with Spark."""


@pipeline.command(
    epilog="""
\b
Examples:
  barnabas pipeline init orders-pipeline --topic orders
  cd orders-pipeline && barnabas pipeline run
"""
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--name", help="What the pipeline is called; the folder's name otherwise.")
@bootstrap_option
def init(folder: Path, topic: str, name: str | None, bootstrap: str) -> None:
    """Begin a project of Spark Declarative Pipelines that reads a topic."""
    from barnabas.cli import pipeline_project  # noqa: PLC0415 - keeps --help fast

    pipeline_project.init(folder, topic, bootstrap, name)


@pipeline.command(
    epilog="""
\b
Examples:
  barnabas pipeline run                              the project in this folder, once
  barnabas pipeline run orders-pipeline --continuous
  barnabas pipeline run --dry-run                    only check the definitions
  barnabas pipeline run --full-refresh orders_raw    make a table anew
  barnabas pipeline run --master spark://host:7077
"""
)
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
    """
    from barnabas.cli import pipeline_project  # noqa: PLC0415 - keeps --help fast

    if full_refresh_all and (refresh or full_refresh):
        raise click.UsageError("--full-refresh-all makes everything anew: leave out --refresh and --full-refresh")
    if continuous and dry_run:
        raise click.UsageError("--dry-run runs nothing, so it cannot be --continuous")
    choice = {"refresh": refresh, "full_refresh": full_refresh, "full_refresh_all": full_refresh_all, "dry": dry_run}
    pipeline_project.run(project, master, config, choice, every_s if continuous else None, as_json)


for job in pipeline_jobs.COMMANDS:
    pipeline.add_command(job)
