"""``barnabas log dump``: prints and verifies segment files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.options import json_option
from barnabas.cli.output import size_text, time_text
from barnabas.cli.suggestions import CommandGroup

if TYPE_CHECKING:
    from barnabas.cli.log_files import Item, Wanted

ALWAYS_SHOWN = ("problem", "summary", "note")


@click.group(cls=CommandGroup)
def log() -> None:
    """Look into segment files and verify them.

    Examples:
      barnabas log dump ./data/hello-0
      barnabas log dump ./data/hello-0/00000000000000000000.log --records
    """


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="PATH...")
@click.option("--records", "-r", is_flag=True, help="Decode the records and verify them too.")
@click.option("--quiet", "-q", is_flag=True, help="Only what is wrong, and a line for each file.")
@click.option("--max-batch-bytes", type=click.IntRange(1), help="A batch may decompress to so much; 100 MB without.")
@json_option
def dump(paths: tuple[str, ...], records: bool, quiet: bool, max_batch_bytes: int | None, as_json: bool) -> None:
    """Read and verify segment files, indexes, snapshots and checkpoints.

    PATH is a file, a partition's folder, or a broker's data folder. Checksums, offsets and the order of entries are
    verified, and indexes are compared with their log. With --json, an object a line.

    Examples:
      barnabas log dump ./data/hello-0
      barnabas log dump ./data --quiet
      barnabas log dump ./data/hello-0/00000000000000000000.log --records
      barnabas log dump ./data/__cluster_metadata-0 --records --json

    \b
    Ends with 1 where something is corrupt.
    """
    from barnabas.cli.log_files import Wanted  # noqa: PLC0415 - keeps --help fast

    wanted = Wanted(records, max_batch_bytes) if max_batch_bytes else Wanted(records)
    files = [file for path in paths for file in _files(path)]
    damaged = {file: count for file in files if (count := _dump_file(file, wanted, quiet, as_json))}
    problems = sum(damaged.values())
    if as_json:
        click.echo(json.dumps({"type": "total", "files": len(files), "problems": problems, "damaged": list(damaged)}))
    if problems:
        raise click.ClickException(
            f"{_count(problems, 'problem')} in {len(damaged)} of {_count(len(files), 'file')}: {', '.join(damaged)}."
        )
    if as_json:
        return
    if files:
        click.echo(f"{_count(len(files), 'file')}, all sound.")
    else:
        click.echo(f"No log files in {', '.join(paths)}: nothing has been written there yet.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{'es' if what.endswith('ch') else 's'}"


def _files(path: str) -> Iterator[str]:
    """Files as they are named; of folders what belongs to a log, and of their folders too."""
    from barnabas.cli.log_files import is_known  # noqa: PLC0415

    if not os.path.isdir(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        if os.path.isdir(inner):
            yield from _files(inner)
        elif is_known(inner):
            yield inner


def _dump_file(path: str, wanted: Wanted, quiet: bool, as_json: bool) -> int:
    """Prints a file's items; returns how many problems there are."""
    problems = 0
    if not as_json:
        click.echo(path)
    for item in _read(path, wanted):
        problems += item["type"] == "problem"
        if quiet and item["type"] not in ALWAYS_SHOWN:
            continue
        click.echo(json.dumps({"file": path, **item}) if as_json else _line(item))
    return problems


def _read(path: str, wanted: Wanted) -> Iterator[Item]:
    from barnabas.cli.log_files import read_file  # noqa: PLC0415 - keeps --help fast

    try:
        yield from read_file(path, wanted)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from error


def _line(item: Item) -> str:
    show = _LINES.get(item["type"])
    return show(item) if show else "  " + _pairs(item)


def _pairs(item: Item) -> str:
    return "  ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in item.items() if key != "type")


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value if value.isprintable() else json.dumps(value)
    return json.dumps(value)


def _batch_line(item: Item) -> str:
    parts = [
        f"offsets {item['base_offset']}-{item['last_offset']}",
        f"position {item['position']}",
        f"{item['size']} bytes",
        f"records {item['records']}",
        item["codec"],
        f"epoch {item['leader_epoch']}",
        time_text(item["max_timestamp"]),
    ]
    if item["producer_id"] >= 0:
        parts.append(f"producer {item['producer_id']}/{item['producer_epoch']}")
        if item["base_sequence"] >= 0:
            parts.append(f"sequence {item['base_sequence']}-{item['last_sequence']}")
    parts += item["flags"]
    parts.append(f"crc {item['crc']:08x}")
    return "  batch " + "  ".join(parts)


def _record_line(item: Item) -> str:
    rest = {key: value for key, value in item.items() if key not in ("type", "offset", "timestamp")}
    return f"    record {item['offset']}  {time_text(item['timestamp'])}  {_pairs(rest)}"


def _summary_line(item: Item) -> str:
    if "batches" not in item:
        return "  = " + _pairs(item)
    text = f"  = {_count(item['batches'], 'batch')}, {_count(item['records'], 'record')}, {size_text(item['bytes'])}"
    return text + (f", offsets {item['first_offset']} to {item['last_offset']}" if item["batches"] else "")


_LINES: dict[str, Callable[[Item], str]] = {
    "batch": _batch_line,
    "record": _record_line,
    "summary": _summary_line,
    "problem": lambda item: f"  ! CORRUPT: {item['problem']}",
    "note": lambda item: f"  ({item['note']})",
}
