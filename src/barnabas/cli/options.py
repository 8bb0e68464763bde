"""Options and small parsers that several commands share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from barnabas.model.ids import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?")
_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def _check_bootstrap(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    from barnabas.client.wire.address import parse_addresses  # noqa: PLC0415 - keeps --help fast

    try:
        return ",".join(map(str, parse_addresses(value)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def bootstrap_option(command: F) -> F:
    return click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        metavar="HOST:PORT[,…]",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar="BARNABAS_BOOTSTRAP",
        show_envvar=True,
        callback=_check_bootstrap,
        help="Brokers to ask first.",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def server_options(command: F) -> F:
    return bootstrap_option(json_option(command))


def parse_pairs(_ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """``k=v``, repeated; for settings, of which the last one counts."""
    return dict(parse_pair_list(_ctx, param, values))


def parse_pair_list(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> list[tuple[str, str]]:
    """``k=v``, repeated; for headers, of which there may be several with one key."""
    pairs = []
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        pairs.append((key, value))
    return pairs


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970 from a number of them, from ISO 8601, or from ``-1h`` ago. Raises ValueError."""
    text = text.strip()
    ago = _AGO.fullmatch(text)
    if ago:
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        return now_ms - int(float(ago[1]) * _UNITS_MS[ago[2]])
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time: milliseconds, ISO 8601 or -1h are") from None


def time_option(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def duration_option(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Milliseconds from ``500ms``, ``90s``, ``5m``, ``1h``; a bare number is seconds."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no duration like 500ms, 90s, 5m or 1h")
    return int(float(found[1]) * _UNITS_MS[found[2] or "s"])


def partition_option(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> list[TopicPartition]:
    """``TOPIC:N``, repeated."""
    places = []
    for text in values:
        topic, colon, number = text.rpartition(":")
        if not (colon and topic and number.isascii() and number.isdigit()):
            raise click.BadParameter(f"{text!r} is not TOPIC:N")
        places.append(TopicPartition(topic, int(number)))
    return list(dict.fromkeys(places))


def throttle_option(command: F) -> F:
    return click.option(
        "--throttle", type=click.IntRange(1), metavar="BYTES", help="Bytes a second that each broker copies at most."
    )(command)


def wait_option(command: F) -> F:
    return click.option("--wait/--no-wait", default=True, help="Until it is done (default), or not.")(command)
