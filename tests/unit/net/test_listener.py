"""What a listener does with the connections that it accepts."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator

import pytest

from barnabas.app.clock import LoopClock
from barnabas.net.channel import is_loopback
from barnabas.net.listener import ConnectionLimits, Listener
from barnabas.runtime.pipeline import Pipeline

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="congestion control is chosen by socket on Linux only")


@pytest.fixture
def listener() -> Iterator[Listener]:
    loop = asyncio.new_event_loop()
    sock = socket.create_server(("127.0.0.1", 0))
    listener = Listener(
        name="PLAINTEXT",
        sock=sock,
        loop=loop,
        pipeline=Pipeline({}, LoopClock(loop), report=lambda *told, **more: None),
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
        name = connection._channel.congestion_control
        connection.close()
        return name


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_replies_to_loopback_peers_are_not_paced(listener: Listener, source: str) -> None:
    assert congestion_control(listener, source) == b"reno"


def test_other_peers_keep_the_hosts_congestion_control() -> None:
    loopback = ["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"]
    others = ["10.0.0.1", "192.168.127.1", "::2", "2001:db8::1", "::ffff:10.0.0.1"]
    assert [is_loopback(peer) for peer in loopback + others] == [True] * len(loopback) + [False] * len(others)
