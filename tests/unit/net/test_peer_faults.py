"""Requests to a node that is late, dies or sends invalid data, and requests of a peer that is closed."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.net.peer import Peer, PeerLimits
from barnabas.wire.api.metadata import MetadataResponse
from tests.unit.net.fake_node import (
    FakeNode,
    NodeConnection,
    Received,
    Reports,
    ask,
    assert_error,
    echo,
    metadata,
    peer_of,
    response_frame,
    serve_metadata,
    versions_response,
)

pytestmark = pytest.mark.usefixtures("unhandled")

# Time-outs


async def test_a_late_response_ends_the_connection_and_what_was_not_sent_goes_over_the_next() -> None:
    closed = asyncio.Event()

    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        request = await connection.receive()
        connection.answer(request, echo(request))
        await connection.until_closed()
        closed.set()

    async with FakeNode(script, serve_metadata) as node:
        peer = peer_of(node.port, limits=PeerLimits(max_in_flight=2, backoff_ms=1))
        assert (await ask(peer, metadata("first"))).cluster_id == "first"
        other, late, unsent = (
            ask(peer, metadata("other")),
            ask(peer, metadata("late"), timeout_ms=5),
            ask(peer, metadata("unsent")),
        )
        assert_error(await late, ErrorCode.REQUEST_TIMED_OUT, "Metadata", "5 ms")
        assert_error(await other, ErrorCode.NETWORK_EXCEPTION, "no response to Metadata")
        assert (await unsent).cluster_id == "unsent"
        await closed.wait()
        peer.close()


async def test_a_request_that_was_not_sent_times_out_alone() -> None:
    held: list[Received] = []

    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        held.append(await connection.receive())
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port, limits=PeerLimits(max_in_flight=1))
        first, behind = ask(peer, metadata("first")), ask(peer, metadata("behind"), timeout_ms=1)
        assert_error(await behind, ErrorCode.REQUEST_TIMED_OUT)
        while not held:
            await asyncio.sleep(0.001)
        node.connections[0].answer(held[0], echo(held[0]))
        assert (await first).cluster_id == "first"
        assert len(node.connections) == 1
        peer.close()


async def test_requests_time_out_while_there_is_no_connection(refusing_port: int) -> None:
    peer = peer_of(refusing_port)
    for timeout_ms in (-1, 0, 20):
        assert_error(await ask(peer, metadata("a"), timeout_ms=timeout_ms), ErrorCode.REQUEST_TIMED_OUT)
    peer.close()


async def test_a_peer_that_does_not_answer_api_versions_is_given_up() -> None:
    async def silent(connection: NodeConnection) -> None:
        await connection.until_closed()

    reports = Reports()
    async with FakeNode(silent, serve_metadata) as node:
        limits = PeerLimits(negotiation_timeout_ms=50, backoff_ms=1)
        peer = peer_of(node.port, limits=limits, report=reports)
        assert (await ask(peer, metadata("a"))).cluster_id == "a"
        peer.close()
    assert reports.all[0]["reason"] == "no response to ApiVersions within 50 ms"


# Broken connections


async def test_a_peer_that_dies_within_a_response_fails_what_was_in_flight_only() -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        request = await connection.receive()
        await connection.receive()
        whole = response_frame(request, echo(request))
        connection.send(whole[: len(whole) // 2])

    async with FakeNode(script, serve_metadata) as node:
        peer = peer_of(node.port, limits=PeerLimits(max_in_flight=2, backoff_ms=1))
        first, second, third = (ask(peer, metadata(name)) for name in ("first", "second", "third"))
        assert_error(await first, ErrorCode.NETWORK_EXCEPTION, "closed")
        assert_error(await second, ErrorCode.NETWORK_EXCEPTION)
        assert (await third).cluster_id == "third"
        peer.close()


async def test_an_idle_connection_that_the_peer_closes_is_replaced_without_a_report() -> None:
    closed = asyncio.Event()

    async def once(connection: NodeConnection) -> None:
        await connection.negotiate()
        request = await connection.receive()
        connection.answer(request, echo(request))
        connection.writer.write_eof()
        await connection.until_closed()
        closed.set()

    reports = Reports()
    async with FakeNode(once) as node:
        peer = peer_of(node.port, report=reports)
        assert (await ask(peer, metadata("a"))).cluster_id == "a"
        await closed.wait()
        assert (await ask(peer, metadata("b"))).cluster_id == "b"
        assert len(node.connections) == 2
        assert reports.all == []
        peer.close()


# Responses that are wrong


def sized(size: int, rest: bytes = b"") -> bytes:
    return size.to_bytes(4, "big", signed=True) + rest


def with_other_correlation_id(frame: bytes) -> bytes:
    return frame[:4] + bytes([frame[4] ^ 1]) + frame[5:]


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "text": lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "negative": lambda frame: sized(-1, frame),
    "smallest": lambda frame: sized(-(1 << 31), frame),
    "empty": lambda frame: sized(0, frame),
    "short": lambda frame: sized(3, b"abc"),
    "oversize": lambda frame: sized((101 << 20) + 1),
    "another's": with_other_correlation_id,
    "header only": lambda frame: sized(4, frame[4:8]),
    "cut off": lambda frame: sized(len(frame) - 8, frame[4:-4]),
    "too long": lambda frame: sized(len(frame), frame[4:] + b"more"),
    "noise": lambda frame: frame[:8] + b"\xff" * (len(frame) - 8),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_wrong_response_ends_the_connection(wrong: Callable[[bytes], bytes]) -> None:
    closed = asyncio.Event()

    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        request = await connection.receive()
        await connection.receive()
        connection.send(wrong(response_frame(request, echo(request))))
        await connection.until_closed()
        closed.set()

    reports = Reports()
    async with FakeNode(script, serve_metadata) as node:
        peer = peer_of(node.port, report=reports)
        for waiting in (ask(peer, metadata("first")), ask(peer, metadata("second"))):
            assert_error(await waiting, ErrorCode.NETWORK_EXCEPTION, "it broke the protocol")
        await closed.wait()
        assert (await ask(peer, metadata("third"))).cluster_id == "third"
        peer.close()
    (report,) = reports.all
    assert report["peer"] == f"127.0.0.1:{node.port}"
    assert "it broke the protocol" in report["reason"]


@pytest.mark.parametrize("wrong", [*WRONG.values(), lambda frame: b""], ids=[*WRONG, "nothing"])
async def test_a_wrong_response_to_api_versions_ends_the_connection(wrong: Callable[[bytes], bytes]) -> None:
    async def script(connection: NodeConnection) -> None:
        request = await connection.receive()
        data = wrong(response_frame(request, versions_response()))
        connection.send(data)
        if data:
            await connection.until_closed()

    async with FakeNode(script, serve_metadata) as node:
        peer = peer_of(node.port)
        assert (await ask(peer, metadata("a"))).cluster_id == "a"
        assert len(node.connections) == 2
        peer.close()


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
async def test_api_versions_that_fails_ends_the_connection(code: ErrorCode) -> None:
    async def script(connection: NodeConnection) -> None:
        while True:
            request = await connection.receive()
            is_old = code is ErrorCode.UNSUPPORTED_VERSION
            connection.answer(request, versions_response({}, code), version=0 if is_old else None)

    reports = Reports()
    async with FakeNode(script, serve_metadata) as node:
        peer = peer_of(node.port, report=reports)
        assert (await ask(peer, metadata("a"))).cluster_id == "a"
        peer.close()
    assert reports.all[0]["reason"] == f"ApiVersions failed with error {int(code)}"


async def test_a_response_that_nothing_asked_for_ends_the_connection() -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        request = await connection.receive()
        connection.send(2 * response_frame(request, echo(request)))
        await connection.until_closed()

    reports = Reports()
    async with FakeNode(script, serve_metadata) as node:
        peer = peer_of(node.port, report=reports)
        assert (await ask(peer, metadata("a"))).cluster_id == "a"
        assert (await ask(peer, metadata("b"))).cluster_id == "b"
        assert len(node.connections) == 2
        peer.close()
    assert "a response without a request" in reports.all[0]["reason"]


async def test_faults_are_reported_in_powers_of_two() -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        await connection.receive()
        connection.send(sized(-1))
        await connection.until_closed()

    reports = Reports()
    async with FakeNode(script) as node:
        peer = peer_of(node.port, report=reports)
        for _ in range(9):
            assert_error(await ask(peer, metadata("a")), ErrorCode.NETWORK_EXCEPTION)
        peer.close()
    assert [report["faults"] for report in reports.all] == [1, 2, 4, 8]


async def test_memory_is_taken_for_bytes_that_came_and_not_for_a_claimed_size() -> None:
    sent = asyncio.Event()

    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        request = await connection.receive()
        connection.send(sized(100 << 20, request.correlation_id.to_bytes(4, "big") + bytes(300_000)))
        await connection.writer.drain()
        sent.set()
        connection.writer.write_eof()
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            assert_error(await ask(peer, metadata("a")), ErrorCode.NETWORK_EXCEPTION)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert sent.is_set()
        assert peak - before < 10 << 20
        peer.close()


# Closing


async def silence(connection: NodeConnection) -> None:
    await connection.until_closed()


async def negotiated(connection: NodeConnection) -> None:
    await connection.negotiate()
    await connection.until_closed()


async def close_and_check(peer: Peer, *waiting: asyncio.Future[MetadataResponse]) -> None:
    peer.close()
    assert not any(each.done() for each in waiting)  # not from inside close
    for each in (*waiting, ask(peer, metadata("too late"))):
        assert_error(await each, ErrorCode.NETWORK_EXCEPTION, "closed")
    peer.close()


@pytest.mark.parametrize("script", [silence, negotiated])
async def test_closing_fails_what_waits_and_leaves_nothing_open(
    script: Callable[[NodeConnection], asyncio.Future[None]],
) -> None:
    async with FakeNode(script) as node:
        peer = peer_of(node.port, limits=PeerLimits(max_in_flight=1))
        waiting = ask(peer, metadata("a")), ask(peer, metadata("b"))
        while not node.connections:
            await asyncio.sleep(0.001)
        await close_and_check(peer, *waiting)
        await node.connections[0].reader.read()
        assert len(node.connections) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_closing_before_the_connection_is_made(refusing_port: int, host: str) -> None:
    for turns in range(4):
        peer = peer_of(refusing_port, host=host)
        waiting = ask(peer, metadata("a"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await close_and_check(peer, waiting)


async def test_closing_while_backing_off(refusing_port: int) -> None:
    refused = asyncio.Event()
    peer = peer_of(refusing_port, limits=PeerLimits(backoff_ms=60_000, max_backoff_ms=60_000), on_refused=refused.set)
    waiting = ask(peer, metadata("a"))
    await refused.wait()
    await close_and_check(peer, waiting)


async def test_a_callback_may_close_the_peer() -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        requests = [await connection.receive() for _ in range(2)]
        connection.send(b"".join(response_frame(request, echo(request)) for request in requests))
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        peer.send(metadata("a"), 60_000, lambda response: peer.close())
        assert_error(await ask(peer, metadata("b")), ErrorCode.NETWORK_EXCEPTION, "closed")
