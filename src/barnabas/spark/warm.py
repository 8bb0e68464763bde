"""Processes that plan streams, there at once: forked from one that has imported what all of them need.

Spark starts a Python process for every run of a stream. A third of a second passes before it can be asked anything,
nearly all of it spent on importing PySpark, numpy and Arrow. A session keeps one process that has done so; where Spark
wants to start another, ``warm_start`` asks it for a fork of itself instead, which gets the arguments, the environment,
the folder and the standard streams of the process it stands for. Where no fork is to be had, that one is started in the
ordinary way.

    python -m barnabas.spark.warm SOCKET MODULE ...    serves until its standard input ends
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.spark.interpreter import RUNNER, WARM
from barnabas.spark.warm_start import STARTED

STOP_TIMEOUT_S = 10.0

_helper: subprocess.Popen[bytes] | None = None


def keep_warm() -> None:
    """Starts the process for the Java that is about to be started from this one, unless it is there."""
    global _helper  # noqa: PLW0603 -- one for this process, as there is one Java
    if _helper is not None and _helper.poll() is None:
        return
    folder = Path(tempfile.mkdtemp(prefix="barnabas-warm-"))
    _helper = subprocess.Popen(
        [sys.executable, "-m", "barnabas.spark.warm", str(folder / "socket"), RUNNER, "barnabas.spark.source"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"},  # as Spark's workers have them
    )
    os.environ[WARM] = str(folder / "socket")
    atexit.register(_stop, _helper, folder)


def _stop(helper: subprocess.Popen[bytes], folder: Path) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        helper.communicate(timeout=STOP_TIMEOUT_S)
    shutil.rmtree(folder, ignore_errors=True)


class _Order(NamedTuple):
    """What the fork is to become."""

    arguments: list[str]
    folder: str
    environment: dict[bytes, bytes]
    streams: list[int]


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which stops its queries
    path, modules = Path(arguments[0]), arguments[1:]
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that have ended leave nothing behind
    connection = _wait(path)
    if connection is None:
        shutil.rmtree(path.parent, ignore_errors=True)  # whoever started this one may have been killed
    else:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become(_receive(connection), connection)


def _wait(path: Path) -> socket.socket | None:
    """In a fork, the connection of the one it was made for; None where no more will be asked for."""
    with socket.socket(socket.AF_UNIX) as listener:
        hidden = path.with_suffix(".new")
        listener.bind(str(hidden))
        listener.listen()
        hidden.rename(path)  # who finds it can connect
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return None
            connection, _ = listener.accept()
            if os.fork() == 0:
                return connection
            connection.close()


def _receive(connection: socket.socket) -> _Order:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        arguments, folder, environment = marshal.loads(stream.read(int.from_bytes(size, "big")))
    return _Order(arguments, folder, environment, streams)


def _become(order: _Order, connection: socket.socket) -> None:
    connection.sendall(STARTED)
    for number, stream in enumerate(order.streams):
        os.dup2(stream, number)
        os.close(stream)
    own = set(_path(os.environ))
    os.environb.clear()
    os.environb.update(order.environment)
    os.chdir(order.folder)
    sys.path[:] = [order.folder, *_path(os.environ), *(entry for entry in sys.path[1:] if entry not in own)]
    module, *rest = order.arguments
    sys.argv[:] = [module, *rest]
    sys.modules.pop(module, None)  # it is to be run, not to be found
    told = bytearray([1])
    # Registered first, so called last: after threads have ended and others have cleaned up.
    atexit.register(_tell, connection, told)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        told[0] = 0
    except SystemExit as end:
        told[0] = end.code & 0xFF if isinstance(end.code, int) else end.code is not None
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def _path(environment: Any) -> list[str]:
    return [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _tell(connection: socket.socket, told: bytearray) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(told)


def _end_with(connection: socket.socket) -> None:
    """Whoever ends the process that Spark knows of means this one."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
