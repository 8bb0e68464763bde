"""What a listener does with the connections that it accepts."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator

import pytest

from barnabas.net.listener import ConnectionLimits, Listener

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="congestion control is chosen by socket on Linux only")


@pytest.fixture
def listener() -> Iterator[Listener]:
    loop = asyncio.new_event_loop()
    sock = socket.create_server(("127.0.0.1", 0))
    listener = Listener(
        name="PLAINTEXT",
        sock=sock,
        loop=loop,
        apis={},
        limits=ConnectionLimits(),
        read_ahead=lambda chunk, then: None,
        log=lambda *told, **more: None,
    )
    listener.start()
    yield listener
    listener.close()
    loop.close()


def congestion_control(listener: Listener, source: str) -> bytes:
    """How the broker's end of a connection from that address sends."""

    async def accepted() -> None:
        while not listener.limits.open:
            await asyncio.sleep(0.001)

    with socket.create_connection(("127.0.0.1", listener.port), source_address=(source, 0)):
        listener.loop.run_until_complete(asyncio.wait_for(accepted(), 10))
        (connection,) = listener.limits.open
        named: bytes = connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        connection.close()
        return named.rstrip(b"\0")


def test_nothing_paces_replies_to_a_peer_on_this_machine(listener: Listener) -> None:
    assert congestion_control(listener, "127.0.0.1") == b"reno"


def test_to_other_addresses_the_choice_is_the_machine_s(listener: Listener) -> None:
    with socket.socket() as fresh:
        default = fresh.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    assert congestion_control(listener, "127.0.0.2") == default
