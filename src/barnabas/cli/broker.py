"""``barnabas broker``: metrics of a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.options import bootstrap_option, json_option
from barnabas.cli.suggestions import CommandGroup

if TYPE_CHECKING:
    from barnabas.wire.api.describe_metrics import ApiMetrics

COLUMNS = ("api", "requests", "refused", "errors", "bytes in", "bytes out", "handler us", "parked ms")


@click.group(
    cls=CommandGroup,
    epilog="""
\b
Examples:
  barnabas broker metrics
  barnabas broker metrics --json
""",
)
def broker() -> None:
    """Show what a running broker has counted."""


@broker.command(
    epilog="""
\b
Examples:
  barnabas broker metrics
  barnabas broker metrics -b 127.0.0.1:9093
  barnabas broker metrics --json | jq '.[] | select(.errors != {}) | {api, errors}'

The table shows APIs that were requested, with means per request; --json has every API, with totals and errors by
code. Only Barnabas brokers serve these metrics.
"""
)
@bootstrap_option
@json_option
def metrics(bootstrap: str, as_json: bool) -> None:
    """Show requests, errors, bytes and times of each API since the broker started."""
    from barnabas.cli.output import print_json, print_table  # noqa: PLC0415 - keeps --help fast
    from barnabas.client.wire import Client  # noqa: PLC0415
    from barnabas.client.wire.metrics import describe_metrics  # noqa: PLC0415

    with Client(bootstrap) as client:
        found = describe_metrics(client)
    if as_json:
        print_json([_totals(each) for each in found])
    else:
        print_table(COLUMNS, [_row(each) for each in found if each.requests or each.refused])


def _totals(api: ApiMetrics) -> dict[str, Any]:
    return {
        "api": api.name,
        "api_key": api.api_key,
        "requests": api.requests,
        "refused": api.refused,
        "errors": {_code_name(each.code): each.count for each in api.errors},
        "bytes_in": api.bytes_in,
        "bytes_out": api.bytes_out,
        "handled_ns": api.handled_ns,
        "parked_ns": api.parked_ns,
        "throttled_ms": api.throttled_ms,
    }


def _code_name(code: int) -> str:
    """The number where this build does not know the code."""
    from barnabas.model.errors import ErrorCode  # noqa: PLC0415 - keeps --help fast

    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _row(api: ApiMetrics) -> list[object]:
    errors = sum(each.count for each in api.errors)
    handler_us = round(api.handled_ns / api.requests / 1e3, 1) if api.requests else None
    parked_ms = round(api.parked_ns / api.requests / 1e6, 1) if api.requests else None
    return [api.name, api.requests, api.refused, errors, api.bytes_in, api.bytes_out, handler_us, parked_ms]
