"""``barnabas broker``: the brokers of a cluster, their load and counters; draining and removing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.options import server_options, throttle_option, wait_option
from barnabas.cli.suggestions import CommandGroup

if TYPE_CHECKING:
    from barnabas.wire.api.describe_metrics import ApiMetrics

COLUMNS = ("api", "requests", "refused", "errors", "bytes in", "bytes out", "handler us", "parked ms")


@click.group(cls=CommandGroup)
def broker() -> None:
    """List brokers, show their load and counters, drain and remove them.

    Examples:
      barnabas broker list
      barnabas broker load
      barnabas broker ready 2
      barnabas broker drain 3
      barnabas broker remove 3
      barnabas broker metrics
    """


@broker.command("list", epilog="\b\nExamples:\n  barnabas broker list\n  barnabas broker list --json")
@server_options
def list_brokers(bootstrap: str, as_json: bool) -> None:
    """List brokers with rack, state, role, leaders and replicas; fenced ones too."""
    from barnabas.cli import broker_admin  # noqa: PLC0415 - keeps --help fast

    broker_admin.list_brokers(bootstrap, as_json)


@broker.command()
@click.option("--seconds", type=click.FloatRange(0.1), default=1.0, show_default=True, help="To measure rates for.")
@server_options
def load(seconds: float, bootstrap: str, as_json: bool) -> None:
    """Show leaders, replicas, bytes and rates of each broker.

    Examples:
      barnabas broker load
      barnabas broker load --seconds 10 --json

    Rates are those of Produce requests in and Fetch responses out, replication included. Apache Kafka does not tell
    them.
    """
    from barnabas.cli import broker_admin  # noqa: PLC0415 - keeps --help fast

    broker_admin.load(seconds, bootstrap, as_json)


@broker.command()
@click.argument("node", type=click.IntRange(0))
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), default=10.0, show_default=True, help="In seconds.")
@server_options
def ready(node: int, timeout_s: float, bootstrap: str, as_json: bool) -> None:
    """Tell whether a broker has recovered from a restart, so that the next one may be restarted.

    Examples:
      barnabas broker ready 2
      barnabas broker ready 2 -b 127.0.0.1:9092 --timeout 5
      until barnabas broker ready 2; do sleep 1; done   after a restart, before the next one

    Ready means: the broker serves (is not fenced), every partition that it replicates has all replicas in sync, and no
    voter of the quorum is behind. Exits with 1, and the reasons, while that is not so.
    """
    from barnabas.cli import broker_ready  # noqa: PLC0415 - keeps --help fast

    broker_ready.run(node, timeout_s, bootstrap, as_json)


@broker.command()
@click.argument("node", type=click.IntRange(0))
@throttle_option
@wait_option
@server_options
def drain(node: int, throttle: int | None, wait: bool, bootstrap: str, as_json: bool) -> None:
    """Move all replicas and leaders off a broker.

    Examples:
      barnabas broker drain 3
      barnabas broker drain 3 --throttle 50000000

    The other brokers must be able to hold every replica. Producers and consumers go on meanwhile.
    """
    from barnabas.cli import broker_admin  # noqa: PLC0415 - keeps --help fast

    broker_admin.drain(node, throttle, wait, bootstrap, as_json)


@broker.command()
@click.argument("node", type=click.IntRange(0))
@server_options
def remove(node: int, bootstrap: str, as_json: bool) -> None:
    """Unregister a broker that was drained and stopped.

    Examples:
      barnabas broker remove 3

    Refuses while the broker has replicas, votes in the quorum, or runs.
    """
    from barnabas.cli import broker_admin  # noqa: PLC0415 - keeps --help fast

    broker_admin.remove(node, bootstrap, as_json)


@broker.command()
@server_options
def metrics(bootstrap: str, as_json: bool) -> None:
    """Show requests, errors, bytes and times of each API since the broker started.

    Examples:
      barnabas broker metrics
      barnabas broker metrics -b 127.0.0.1:9093
      barnabas broker metrics --json | jq '.[] | select(.errors != {}) | {api, errors}'

    The table shows APIs that were requested, with means per request; --json has every API, with totals and errors by
    code. Only Barnabas brokers serve these metrics.
    """
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
