"""``barnabas adopt``: take over the data folder of a single-node Kafka."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from barnabas.app.program import program
from barnabas.cli.output import print_json, print_table, size_text
from barnabas.cli.suggestions import Command

if TYPE_CHECKING:
    from barnabas.app.adoption import Findings


@click.command(cls=Command)
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Look only; nothing in the folder is changed.")
@click.option("--force", is_flag=True, help="Take it over although something in it cannot be honoured here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def adopt(folder: str, dry_run: bool, force: bool, as_json: bool) -> None:
    """Check the data folder of a single-node Kafka 4.3 that was stopped, and take it over.

    The formats are the same on both sides, so nothing is converted, and Kafka can be started on the folder again.
    Refused, unless forced: access control entries, SCRAM users, quotas, remote storage and open transactions, which
    this version cannot honour. A folder of a cluster of several nodes cannot be taken over.

    Examples:
      barnabas adopt /var/lib/kafka/data --dry-run    what is there, and what stands in the way
      barnabas adopt /var/lib/kafka/data              take it over
      barnabas serve --data /var/lib/kafka/data       then serve it
    """
    from barnabas.app import adoption  # noqa: PLC0415 -- --help needs none of it
    from barnabas.app.os_disk import OsDisk  # noqa: PLC0415
    from barnabas.model.ports import DiskError  # noqa: PLC0415
    from barnabas.storage.log_directory import LOCK_FILE  # noqa: PLC0415

    disk = OsDisk()
    root = os.path.abspath(folder)
    try:
        lock = f"{root}/{LOCK_FILE}"  # every broker makes one; looking makes none
        if os.path.exists(lock) and not disk.lock(lock):
            raise click.ClickException(f"{root} is in use: stop the broker that runs on it first.")
        findings = adoption.inspect(disk, root)
        refused = bool(findings.faults) or (bool(findings.obstacles) and not force)
        if as_json:
            _print_json(findings, refused=refused)
        elif findings.is_readable:
            _print(root, findings)
        if findings.faults:
            raise click.ClickException(f"Cannot take over {root}: {'; '.join(findings.faults)}.")
        if refused and not dry_run:
            raise click.ClickException("Not taken over, because of the obstacles. With --force it is.")
        if not dry_run:
            adoption.adopt(disk, root, findings)
            click.echo(f"Taken over. Serve it with: {program()} serve --data {root}", err=as_json)
        elif refused:
            sys.exit(1)
    except DiskError as problem:
        reason = getattr(problem.cause, "strerror", None) or str(problem.cause)
        raise click.ClickException(f"Cannot take over {root}: {problem.path}: {reason.lower()}.") from problem
    finally:
        disk.close()


def _print_json(findings: Findings, *, refused: bool) -> None:
    print_json(
        {
            "cluster_id": findings.cluster_id,
            "node_id": findings.node_id,
            "clean": findings.was_clean,
            "topics": {name: len(findings.image.topics[name].partitions) for name in findings.topics},
            "bytes": findings.size_bytes,
            "obstacles": findings.obstacles,
            "faults": findings.faults,
            "adoptable": not refused,
        }
    )


def _print(root: str, findings: Findings) -> None:
    click.echo(f"folder   {root}")
    click.echo(f"cluster  {findings.cluster_id}, node {findings.node_id}")
    click.echo(f"stopped  {'cleanly' if findings.was_clean else 'not cleanly'}")
    sizes: dict[str, int] = {}
    for partition, size in findings.partitions:
        sizes[partition.topic] = sizes.get(partition.topic, 0) + size
    rows = [
        (name, len(findings.image.topics[name].partitions), size_text(sizes.get(name, 0)), _settings(findings, name))
        for name in findings.topics
    ]
    print_table(["topic", "partitions", "size", "settings"], rows)
    for line in findings.obstacles:
        click.echo(f"obstacle: {line}")


def _settings(findings: Findings, topic: str) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(findings.image.topic_configs(topic).items()))
