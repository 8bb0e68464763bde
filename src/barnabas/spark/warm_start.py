"""Stands for a Python process that was forked elsewhere (see ``warm``): started by Spark, ended by Spark.

    python -I -S warm_start.py SOCKET PYTHON -m MODULE ...

It has to be there in no time: nothing is imported but what Python has built in, and the socket.
"""

from __future__ import annotations

import marshal
import os
import socket
import sys

STARTED = b"+"


def main(place: str, python: str, *arguments: str) -> int:
    """The exit code of the process this one stands for."""
    connection = socket.socket(socket.AF_UNIX)
    if not _is_forked(connection, place, arguments):
        os.execv(python, [python, *arguments])
    told = connection.recv(1)
    return told[0] if told else 1


def _is_forked(connection: socket.socket, place: str, arguments: tuple[str, ...]) -> bool:
    order = marshal.dumps((list(arguments[1:]), os.getcwd(), dict(os.environb)))
    try:
        connection.connect(place)
        socket.send_fds(connection, [len(order).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(order)
        return connection.recv(1) == STARTED
    except OSError:  # not there yet, or no more
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
