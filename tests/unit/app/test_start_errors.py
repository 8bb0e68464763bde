"""Errors at the start say what to do."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from pathlib import Path

import pytest

from barnabas.app.listeners import Address, cannot_listen
from barnabas.model.ports import DiskError
from barnabas.node.folders import unusable
from tests.unit.cli.command_line import COMMAND, run


def refused(*arguments: str) -> str:
    """What a broker says that does not start. In a process of its own: ``serve`` takes the process over."""
    done = subprocess.run([*COMMAND, "serve", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("barnabas: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("listen", "remedy"),
    [
        ("9778", "'9778' is not HOST:PORT. Write 127.0.0.1:9778."),
        ("foo", "'foo' is not HOST:PORT. Write foo:9092."),
        ("foo:bar", "Write e.g. 127.0.0.1:9092."),
        ("127.0.0.1:99999", "99999 is not a port. Ports are 0 to 65535"),
        ("::1:9778", "an IPv6 address in brackets, e.g. [::1]:9092."),
        ("PLAINTEXT://127.0.0.1:9778", "Write 127.0.0.1:9778."),
    ],
)
def test_an_address_that_is_none(listen: str, remedy: str) -> None:
    assert remedy in run("serve", "--memory", "--listen", listen, code=2).stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_listening_everywhere_says_how_to_advertise(host: str) -> None:
    told = refused("--memory", "--listen", f"{host}:9778")
    assert "Add --set advertised.listeners=PLAINTEXT://HOST:9778, where HOST is this machine's name" in told


def test_a_port_in_use_suggests_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused("--memory", "--listen", f"127.0.0.1:{port}")
    assert f"Cannot listen on 127.0.0.1:{port}: address already in use. " in told
    assert "another port, e.g. --listen 127.0.0.1:" in told


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EADDRINUSE, "e.g. --listen [::1]:81."),
        (errno.EACCES, "Ports below 1024 need privileges: choose a higher one, e.g. --listen [::1]:9092."),
        (errno.EADDRNOTAVAIL, "This machine has no such address"),
        (errno.ENOBUFS, "Choose another with --listen HOST:PORT."),
    ],
)
def test_a_refused_address_has_a_remedy(code: int, remedy: str) -> None:
    told = cannot_listen(Address("PLAINTEXT", "::1", 80), OSError(code, os.strerror(code)))
    assert told.startswith(f"Cannot listen on [::1]:80: {os.strerror(code).lower()}. ")
    assert told.endswith(remedy) or remedy in told


@pytest.mark.parametrize("inner", ["", "/folder"])
def test_a_data_folder_that_is_a_file(tmp_path: Path, inner: str) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    told = refused("--listen", "127.0.0.1:0", "--data", f"{file}{inner}")
    assert f"Cannot use the data folder {file}{inner}: it is a file, or a part of its path is. Give another" in told
    assert file.read_text() == "kept"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            errno.EACCES,
            "permission denied. Make it writable for the user that runs the broker, or give another",
        ),
        (errno.EROFS, "its file system is read-only. Give another"),
        (errno.ENOSPC, "no space left on device. Give another"),
    ],
)
def test_a_data_folder_that_cannot_be_written(code: int, told: str) -> None:
    problem = DiskError("lock", "/data/.lock", OSError(code, os.strerror(code)))
    assert unusable("/data", problem) == f"Cannot use the data folder /data: {told} --data."
