"""How a peer connects: back-off between attempts, refusals, and a real broker on either event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.app.loops import new_event_loop
from barnabas.model.errors import ErrorCode
from barnabas.net.peer import Backoff, PeerLimits
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import batch, fetch_request, produce_request
from tests.unit.net.fake_node import (
    FakeNode,
    NodeConnection,
    ask,
    assert_error,
    metadata,
    peer_of,
    serve_metadata,
    unused_port,
)

pytestmark = pytest.mark.usefixtures("unhandled")

# Back-off


def test_backoff_doubles_with_jitter_up_to_its_limit() -> None:
    limits = PeerLimits(backoff_ms=50, max_backoff_ms=1000, backoff_jitter_percent=20)
    runs = []
    for seed in range(50):
        backoff = Backoff(limits, random.Random(seed))
        waits = [backoff.fail() for _ in range(40)]
        for wait, middle in zip(waits, [50, 100, 200, 400, 800, *[1000] * 35], strict=True):
            assert 0.8 * middle <= wait <= 1.2 * middle
        runs.append(waits[0])
        backoff.reset()
        assert 40 <= backoff.fail() <= 60
    assert min(runs) < 45
    assert max(runs) > 55


class HastyLoop:
    """Keeps the waits of up to two seconds, and does not wait for them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waits_ms: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, delay_s: float, callback: Callable[..., Any], *arguments: Any) -> asyncio.TimerHandle:
        if delay_s > 2:
            return self._loop.call_later(delay_s, callback, *arguments)
        self.waits_ms.append(delay_s * 1000)
        return self._loop.call_later(0, callback, *arguments)


async def test_attempts_at_a_peer_that_refuses_are_further_and_further_apart(refusing_port: int) -> None:
    loop, refused = HastyLoop(), asyncio.Event()
    count = 0

    def on_refused() -> None:
        nonlocal count
        count += 1
        if count == 8:
            refused.set()

    peer = peer_of(refusing_port, limits=PeerLimits(), loop=loop, on_refused=on_refused)
    waiting = ask(peer, metadata("a"))
    await refused.wait()
    peer.close()
    assert_error(await waiting, ErrorCode.NETWORK_EXCEPTION)
    for wait, middle in zip(loop.waits_ms, [50, 100, 200, 400, 800, 1000, 1000], strict=False):
        assert wait <= 1.2 * middle
    assert len(loop.waits_ms) >= 7
    assert max(loop.waits_ms) > 200


async def test_a_peer_that_answered_api_versions_is_tried_again_soon() -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        await connection.receive()

    async with FakeNode(script) as node:
        loop = HastyLoop()
        peer = peer_of(node.port, limits=PeerLimits(), loop=loop)
        for _ in range(6):
            assert_error(await ask(peer, metadata("a")), ErrorCode.NETWORK_EXCEPTION)
        assert len(node.connections) == 6
        assert max(loop.waits_ms, default=0) <= 60
        peer.close()


# Connecting


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_made_known_at_once(refusing_port: int, host: str) -> None:
    refused = asyncio.Event()
    peer = peer_of(refusing_port, host=host, on_refused=refused.set)
    waiting = ask(peer, metadata("a"))
    await refused.wait()
    assert not waiting.done()
    peer.close()
    assert_error(await waiting, ErrorCode.NETWORK_EXCEPTION)


async def test_requests_wait_for_a_peer_that_comes_up_later() -> None:
    sock, port = unused_port()
    refused = asyncio.Event()
    peer = peer_of(port, on_refused=refused.set)
    waiting = ask(peer, metadata("a"))
    await refused.wait()
    async with FakeNode(serve_metadata, sock=sock):
        assert (await waiting).cluster_id == "a"
        peer.close()


@pytest.mark.parametrize("choice", ["asyncio", "uvloop"])
def test_a_real_broker_answers_on_either_loop(choice: str, refusing_port: int) -> None:
    if choice == "uvloop":
        pytest.importorskip("uvloop")

    async def converse(port: int) -> None:
        for host in ("127.0.0.1", "localhost"):
            peer = peer_of(port, host=host)
            answers = [
                ask(peer, metadata("orders")),
                ask(peer, produce_request("orders", batch(b"v" * 99_999)), version=9),
            ]
            assert (await answers[0]).brokers[0].port == port
            assert (await answers[1]).responses[0].partition_responses[0].error_code == 0
            fetched = await ask(peer, fetch_request("orders"), version=12)
            assert fetched.responses[0].partitions[0].error_code == 0
            assert len(fetched.responses[0].partitions[0].records) > 99_999
            peer.close()
        refused = asyncio.Event()
        peer = peer_of(refusing_port, on_refused=refused.set)
        waiting = ask(peer, metadata("a"))
        await refused.wait()
        peer.close()
        assert_error(await waiting, ErrorCode.NETWORK_EXCEPTION)

    with EmbeddedBroker() as broker, asyncio.Runner(loop_factory=lambda: new_event_loop(choice)) as runner:
        runner.run(converse(broker.port))
