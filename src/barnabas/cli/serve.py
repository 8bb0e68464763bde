"""``barnabas serve``: runs a broker in this process until a signal stops it."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import click

from barnabas.app.program import activation, program
from barnabas.cli.output import discard_output
from barnabas.cli.suggestions import Command
from barnabas.model.errors import StartError

MAX_PORT = 65535
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.%]*\]|[^:/\[\]\s]*):(\d{1,6})")


def _pairs(_context: Any, _parameter: Any, values: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r}: write KEY=VALUE.")
        pairs.append((key.strip(), text.strip()))
    return pairs


def _check_listen(_context: Any, _parameter: Any, value: str | None) -> str | None:
    if value is None:
        return None
    match = _HOST_PORT.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not HOST:PORT. Write {_corrected(value)}.")
    if int(match[2]) > MAX_PORT:
        raise click.BadParameter(f"{match[2]} is not a port. Ports are 0 to {MAX_PORT}, and 0 takes a free one.")
    return value


def _corrected(text: str) -> str:
    """What was probably meant."""
    text = text.rpartition("://")[2]
    if text.count(":") > 1:
        return "an IPv6 address in brackets, e.g. [::1]:9092"
    guess = f"127.0.0.1:{text}" if text.isdecimal() else text if ":" in text else f"{text}:9092"
    return guess if _HOST_PORT.fullmatch(guess) else "e.g. 127.0.0.1:9092"


@click.command(cls=Command, context_settings={"max_content_width": 110})
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=_check_listen,
    help="Where to listen (default 127.0.0.1:9092; port 0 takes a free one).",
)
@click.option("--data", metavar="DIR", help="The data folder (default ./data).")
@click.option("--config", metavar="FILE", help="Settings in the form of Kafka's server.properties.")
@click.option(
    "--set",
    "given",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_pairs,
    help="One setting by Kafka's name; repeatable.",
)
@click.option("--durable", is_flag=True, help="Sync every append before it is acknowledged.")
@click.option("--memory", is_flag=True, help="Keep everything in memory; gone when the process ends.")
@click.option("--workers", type=click.IntRange(1, 256), help="Run so many brokers, each a process; see below.")
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="Stop when standard input ends: for workers.")
def serve(
    listen: str | None,
    data: str | None,
    config: str | None,
    given: list[tuple[str, str]],
    durable: bool,
    memory: bool,
    workers: int | None,
    until_stdin_ends: bool,
) -> None:
    """Run a broker that Kafka clients connect to.

    Settings carry Kafka's names and come from --config, then the environment (BARNABAS_LOG_RETENTION_MS is
    log.retention.ms), then --set. SIGTERM and Ctrl-C stop it cleanly.

    Examples:
      barnabas serve                                    on 127.0.0.1:9092, data in ./data
      barnabas serve --listen 127.0.0.1:0 --memory      a free port, nothing on disk
      barnabas serve --data /var/lib/barnabas --durable every append synced
      barnabas serve --set log.retention.hours=24 --set num.partitions=8
      barnabas serve --config server.properties         Kafka's own file
      barnabas serve --config server.properties --workers 4
                                                        four brokers, one per core

    Workers: with --workers N, worker i (0 to N-1) has the given settings, but node.id + i, each port + i, folders
    worker-i below the data folders, and the machine's name as broker.rack where that is not set. Worker 0 has the given
    process.roles, and the controller's listener with them; the others are brokers. Without
    controller.quorum.bootstrap.servers, worker 0 is the cluster's only controller and the others join it, on 127.0.0.1
    at the first port + 10000 where listeners names no controller listener. A worker that dies starts again after 0.5 s,
    later after up to 30 s; five failures in a row within 10 s of a start stop all.
    """
    settings = [*given]
    if listen is not None:
        settings.append(("listeners", f"PLAINTEXT://{listen}"))
    if data is not None:
        settings.append(("log.dirs", data))
    if durable:
        settings.append(("barnabas.durable", "true"))
    if workers is not None and memory:
        raise click.UsageError("--workers keep their data in folders: leave out --memory.")
    try:
        if workers is not None:
            sys.exit(_supervise(config, settings, workers))
        sys.exit(_run(config, settings, memory=memory, until_stdin_ends=until_stdin_ends))
    except StartError as problem:
        click.echo(f"barnabas: {problem}", err=True)
        sys.exit(2)


def _supervise(config: str | None, given: list[tuple[str, str]], count: int) -> int:
    from barnabas.app import settings_loader, workers  # noqa: PLC0415 -- --help needs none of it
    from barnabas.app.supervisor import Supervisor, command_of  # noqa: PLC0415

    base = settings_loader.load(file=config, environment=os.environ, given=given).settings
    for warning in workers.check_folders(base.data_directories, count):
        _say(f"WARNING: {warning}", err=True)
    planned = workers.plan_workers(config=config, environment=os.environ, given=given, count=count)
    workers.format_workers(planned)
    commands = [command_of(config, [*given, *worker.given]) for worker in planned]
    code = Supervisor(commands, lambda line, is_error: _say(line, err=is_error)).run()
    if code == 0:
        _say("stopped cleanly")
    return code


def _run(config: str | None, given: list[tuple[str, str]], *, memory: bool, until_stdin_ends: bool) -> int:
    from barnabas.app.run import run  # noqa: PLC0415 -- --help needs none of it

    failures: list[str] = []

    def on_ending(failure: str | None) -> None:
        if failure is None:
            _say("stopping")
        else:
            failures.append(failure)
            _say(f"barnabas: {failure}", err=True)

    is_clean = run(
        config=config,
        given=given,
        memory=memory,
        on_started=lambda server: _announce(server, memory=memory),
        on_ending=on_ending,
        until_stdin_ends=until_stdin_ends,
    )
    if is_clean:
        _say("stopped cleanly")
    elif not failures:
        _say("barnabas: Stopped, but the disk did not let it be clean: the next start checks the logs.", err=True)
    return 0 if is_clean else 1


def _say(text: str, *, err: bool = False) -> None:
    """A broker whose output goes nowhere (``| head``, a full disk) must still serve and stop cleanly."""
    try:
        click.echo(text, err=err)
    except OSError:
        discard_output()


def _announce(server: Any, *, memory: bool) -> None:
    from barnabas.app.listeners import Address, is_loopback  # noqa: PLC0415
    from barnabas.node.description import promise  # noqa: PLC0415
    from barnabas.wire import walk  # noqa: PLC0415

    for bound in server.bound:
        _say(f"listening on {bound.address}")
        if not is_loopback(bound.address.host):
            _say(
                f"WARNING: {bound.address} can be reached from other machines, and there is no authentication and no "
                "encryption yet: anyone who reaches it can read, write and delete everything.",
                err=True,
            )
    first = server.bound[0].advertised
    address = Address(first.name, first.host, first.port)
    place = "memory" if memory else ", ".join(os.path.abspath(path) for path in server.settings.data_directories)
    checks = {"header": "headers only", "all": "every record"}.get(
        server.settings.validation, "every uncompressed record"
    )
    how = "native code" if walk.NATIVE else "Python: slow, install a C compiler and reinstall"
    _say(f"data in      {place}")
    _say(f"durability   {promise(server.settings, server.node.broker.static_settings, memory=memory)}")
    _say(f"validation   {checks} ({how})")
    _say(f"first message: {program()} produce hello --message 'hi there' -b {address}")
    script = activation()
    if script is not None:
        _say(f"to have it as plain `barnabas`: source {script}")
