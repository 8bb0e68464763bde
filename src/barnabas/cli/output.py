"""Output of commands: tables on a terminal, plain columns through a pipe, JSON for programs."""

from __future__ import annotations

import base64
import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

_KILO = 1024.0
FOLDED_WIDTH = 12
"""A column of text is not made narrower."""
_PRINTERS = ("click.", "rich.", "barnabas.cli.")
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF})


def is_output_error(error: BaseException) -> bool:
    """Whether standard output could not be written to: what was raised where we print, not by files or libraries."""
    if not isinstance(error, OSError) or error.errno not in _WRITE_ERRORS or error.filename is not None:
        return False
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    module = place.tb_frame.f_globals.get("__name__", "") if place is not None else ""
    return module.startswith(_PRINTERS)


def discard_output() -> None:
    """After a failed write: what is still buffered must not fail again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Columns of numbers are set to the right."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [all(isinstance(row[at], (int, float, type(None))) for row in rows) for at in range(len(columns))]
    if sys.stdout.isatty():
        _print_rich(columns, texts, numeric, title)
    else:
        _print_plain(columns, texts, numeric, title)


def print_described(items: Sequence[dict[str, Any]], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """What ``describe`` has found: JSON, or block after block for a person."""
    if as_json:
        print_json(items)
        return
    for at, item in enumerate(items):
        if at:
            click.echo()
        show(item)


def _print_plain(columns: Sequence[str], rows: list[list[str]], numeric: list[bool], title: str) -> None:
    if title:
        click.echo(title)
    table = [[column.upper() for column in columns], *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(columns))]
    for row in table:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _print_rich(columns: Sequence[str], rows: list[list[str]], numeric: list[bool], title: str) -> None:
    from rich.box import SIMPLE  # noqa: PLC0415 - only where a person looks
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    widths = _least_widths(columns, rows, numeric)
    if sum(widths) + 3 * len(widths) + 1 > console.width:
        _print_records(columns, rows, title)
        return
    table = Table(title=Text(title) if title else None, title_justify="left", box=SIMPLE)
    for column, right, width in zip(columns, numeric, widths, strict=True):
        table.add_column(
            Text(column), justify="right" if right else "left", overflow="fold", min_width=width, no_wrap=right
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _least_widths(columns: Sequence[str], rows: list[list[str]], numeric: list[bool]) -> list[int]:
    """Headers and numbers stay in one piece; longer texts may be folded."""
    longest = [max((len(row[at]) for row in rows), default=0) for at in range(len(columns))]
    return [
        max(len(column), width if right else min(width, FOLDED_WIDTH))
        for column, width, right in zip(columns, longest, numeric, strict=True)
    ]


def _print_records(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    """For a terminal too narrow for the table: a line for each cell, a block for each row."""
    if title:
        click.echo(title)
    width = max(map(len, columns))
    for row in rows:
        click.echo()
        for column, cell in zip(columns, row, strict=True):
            click.echo(f"{column.ljust(width)}  {cell}")


def counted(number: int, noun: str) -> str:
    """``1 partition``, ``2 partitions``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size_text(size: float) -> str:
    """1536 is ``1.5 KB``."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size) < _KILO:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KILO
    return f"{size:.1f} TB"


def time_text(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; ``-`` for a record without a time, the bare number for one beyond the calendar."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_text(seconds: float | None) -> str | None:
    """3725 is ``1h 2m``."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f}s" if 0 < seconds < 10 else f"{seconds:.0f}s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}m {int(seconds % 60)}s"
    hours = minutes // 60
    return f"{hours}h {minutes % 60}m" if hours < 48 else f"{hours // 24}d {hours % 24}h"


def safe_text(data: bytes | None) -> str:
    """Text as it is; what would move the cursor, ring the bell or is no text at all as ``\\x1b``. ``null`` for None."""
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(map(_safe_character, text))


def _safe_character(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return character.encode("unicode_escape").decode("ascii")


def json_bytes(name: str, data: bytes | None) -> dict[str, Any]:
    """``{name: text}``, or ``{name_base64: …}`` for what is not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
