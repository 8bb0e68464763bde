"""``barnabas quorum``: the voters of the metadata log."""

from __future__ import annotations

import re

import click

from barnabas.cli.options import server_options
from barnabas.cli.suggestions import CommandGroup

_ENDPOINT = re.compile(r"(?:([A-Za-z0-9_\-]+)://)?(\[[0-9a-fA-F:.%]*\]|[^:/\[\]\s]+):(\d{1,5})")


def _endpoint(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, str, int] | None:
    if value is None:
        return None
    match = _ENDPOINT.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not HOST:PORT or LISTENER://HOST:PORT")
    return (match[1] or "CONTROLLER").upper(), match[2].strip("[]"), int(match[3])


@click.group(cls=CommandGroup)
def quorum() -> None:
    """Show and change the voters of the metadata quorum.

    A node becomes a voter in three steps: format its folder with --no-initial-controllers, start it as a controller,
    add it here. One voter is added or removed at a time.

    Examples:
      barnabas quorum status
      barnabas quorum add-voter 4
      barnabas quorum remove-voter 1
    """


@quorum.command(epilog="\b\nExamples:\n  barnabas quorum status\n  barnabas quorum status --json")
@server_options
def status(bootstrap: str, as_json: bool) -> None:
    """Show leader, voters and observers, and how far each is."""
    from barnabas.cli import quorum_admin  # noqa: PLC0415 - keeps --help fast

    quorum_admin.status(bootstrap, as_json)


@quorum.command("add-voter")
@click.argument("node", type=click.IntRange(0))
@click.option("--directory-id", metavar="UUID", help="Of the node's metadata folder (storage info shows it).")
@click.option("--endpoint", metavar="[LISTENER://]HOST:PORT", callback=_endpoint, help="Of the node's controller.")
@server_options
def add_voter(
    node: int, directory_id: str | None, endpoint: tuple[str, str, int] | None, bootstrap: str, as_json: bool
) -> None:
    """Make a node that runs as a controller a voter.

    Examples:
      barnabas quorum add-voter 4
      barnabas quorum add-voter 4 --endpoint CONTROLLER://host4:9093 --directory-id UUID

    Directory id and endpoint come from the cluster, where the node runs already. Apache Kafka does not tell endpoints
    of nodes that are no voters: give --endpoint there.
    """
    from barnabas.cli import quorum_admin  # noqa: PLC0415 - keeps --help fast

    quorum_admin.add_voter(node, directory_id, endpoint, bootstrap, as_json)


@quorum.command("remove-voter", epilog="\b\nExamples:\n  barnabas quorum remove-voter 1")
@click.argument("node", type=click.IntRange(0))
@click.option("--directory-id", metavar="UUID", help="Where two entries have the same id.")
@server_options
def remove_voter(node: int, directory_id: str | None, bootstrap: str, as_json: bool) -> None:
    """Take a voter out of the quorum; its node may be gone for good."""
    from barnabas.cli import quorum_admin  # noqa: PLC0415 - keeps --help fast

    quorum_admin.remove_voter(node, directory_id, bootstrap, as_json)
