"""Keeps a local cluster up for ``barnabas cluster up``, and stops it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import click

from barnabas.app.local_cluster import LOOK_S, STOP_TIMEOUT_S, LocalCluster, choose_ports
from barnabas.app.program import program
from barnabas.cli.cluster_status import StatusReader
from barnabas.cli.cluster_view import LiveView, PlainView
from barnabas.cli.output import counted
from barnabas.model.errors import StartError

HOST = "127.0.0.1"
DEFAULT_BROKERS = 3
REFRESH_S = 1.0


def run(data: str, brokers: int | None, settings: Mapping[str, str], port: int | None) -> None:
    folder = Path(data).absolute()
    try:
        local = _open_or_create(folder, brokers, settings, port)
    except StartError as problem:
        raise click.ClickException(str(problem)) from problem
    if not local.lock():
        raise click.ClickException(f"Process {local.keeper()} keeps the cluster in {folder} up already.")
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        """The first signal ends the wait; the stop itself is not interrupted by a second one."""
        if not ended.is_set():
            ended.set()
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        _start(local)
        _watch(local)
    except KeyboardInterrupt:
        pass
    except StartError as problem:
        raise click.ClickException(str(problem)) from problem
    finally:
        ended.set()
        click.echo("Stopping all brokers.")
        local.stop_all()
    click.echo(f"Stopped. To start the cluster again: {program()} cluster up --data {data}")


def _open_or_create(folder: Path, brokers: int | None, settings: Mapping[str, str], port: int | None) -> LocalCluster:
    if not LocalCluster.exists(folder):
        count = brokers or DEFAULT_BROKERS
        ports = choose_ports(HOST, count, port)
        return LocalCluster.create(folder, brokers=count, settings=settings, host=HOST, ports=ports)
    local = LocalCluster.open(folder)
    if brokers is not None and brokers != len(local.nodes):
        raise StartError(f"The cluster in {folder} has {len(local.nodes)} brokers, not {brokers}.")
    first = next(iter(local.nodes.values())).port
    if port is not None and port != first:
        raise StartError(f"The cluster in {folder} has port {first}, and a cluster keeps its ports: not {port}.")
    if settings:
        local.configure(settings)
    return local


def _start(local: LocalCluster) -> None:
    click.echo(f"Starting {counted(len(local.nodes), 'broker')} in {local.folder}.")
    began_s = time.monotonic()
    local.start_all()
    click.echo(f"Started in {time.monotonic() - began_s:.1f} s. Bootstrap servers: {local.bootstrap_servers}")


def _watch(local: LocalCluster) -> None:
    """Until a signal ends it. What has ended stays so: restarts are for the user."""
    reader = StatusReader(local)
    is_terminal = sys.stdout.isatty()
    view = LiveView(str(local.folder), local.bootstrap_servers) if is_terminal else PlainView()
    try:
        with view:
            while True:
                view.show(reader.read())
                time.sleep(REFRESH_S)
    finally:
        reader.close()


def stop(local: LocalCluster) -> None:
    """From another process than the one that keeps the cluster up."""
    keeper = local.keeper()
    running = [node_id for node_id in local.nodes if local.is_running(node_id)]
    if keeper is not None:
        os.kill(keeper, signal.SIGTERM)
    local.stop_all()
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while local.keeper() is not None and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)
    click.echo(f"Stopped {counted(len(running), 'broker')} in {local.folder}.")
