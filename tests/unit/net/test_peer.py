"""Requests to another node: versions, order, limits, large messages."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from typing import Any

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.net.peer import PeerLimits
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.wire.api.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.wire.api.vote import VoteRequest
from tests.unit.net.fake_node import (
    FakeNode,
    NodeConnection,
    Received,
    ask,
    assert_error,
    echo,
    metadata,
    peer_of,
    serve_metadata,
    versions_response,
)

pytestmark = pytest.mark.usefixtures("unhandled")

METADATA, FETCH, API_VERSIONS = 3, 1, 18


# Requests and versions


async def test_the_first_request_connects_and_later_ones_use_the_same_connection() -> None:
    first: list[Received] = []

    async def script(connection: NodeConnection) -> None:
        first.append(await connection.negotiate())
        while True:
            request = await connection.receive()
            assert request.client_id == "node 1"
            connection.answer(request, echo(request))

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        for _ in range(5):
            await asyncio.sleep(0)
        assert node.connections == []
        for name in ("a", "b"):
            assert (await ask(peer, metadata(name))).cluster_id == name
        assert len(node.connections) == 1
        peer.close()
    asked = first[0].message
    assert (first[0].version, asked.client_software_name, asked.client_software_version) == (3, "barnabas", "0.1")


@pytest.mark.parametrize(
    ("offered", "wanted", "sent"), [((0, 99), None, 13), ((2, 5), None, 5), ((0, 99), 7, 7), ((7, 7), 7, 7)]
)
async def test_a_request_goes_in_the_highest_common_version_or_in_the_one_asked_for(
    offered: tuple[int, int], wanted: int | None, sent: int
) -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate({METADATA: offered})
        request = await connection.receive()
        connection.answer(request, MetadataResponse(controller_id=request.version))
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        assert (await ask(peer, MetadataRequest(topics=[]), version=wanted)).controller_id == sent
        peer.close()


async def test_what_both_sides_do_not_know_is_refused_by_name() -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate({METADATA: (90, 99), FETCH: (4, 6), API_VERSIONS: (0, 4)})
        request = await connection.receive()
        connection.answer(request, versions_response())
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        none, other, absent = (
            ask(peer, metadata("a")),
            ask(peer, FetchRequest(), version=7),
            ask(peer, VoteRequest()),
        )
        sent = ask(peer, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        assert_error(await none, ErrorCode.UNSUPPORTED_VERSION, "Metadata", "0-13", "90-99")
        assert_error(await other, ErrorCode.UNSUPPORTED_VERSION, "Fetch", "version 7", "4-18", "4-6")
        assert_error(await absent, ErrorCode.UNSUPPORTED_VERSION, "Vote")
        assert isinstance(await sent, ApiVersionsResponse)
        assert len(node.connections) == 1
        peer.close()


async def test_a_request_that_cannot_be_encoded_fails_alone() -> None:
    async with FakeNode(serve_metadata) as node:
        peer = peer_of(node.port)
        bad, good = ask(peer, metadata(7)), ask(peer, metadata("a"))  # type: ignore[arg-type]
        assert_error(await bad, ErrorCode.INVALID_REQUEST)
        assert (await good).cluster_id == "a"
        peer.close()


@pytest.mark.parametrize(("highest", "then_asked"), [(2, 2), (0, 0), (None, 0), (3, 2)])
async def test_a_peer_that_does_not_know_the_version_of_api_versions_is_asked_in_a_lower_one(
    highest: int | None, then_asked: int
) -> None:
    async def script(connection: NodeConnection) -> None:
        request = await connection.receive()
        offered = {} if highest is None else {API_VERSIONS: (0, highest)}
        connection.answer(request, versions_response(offered, ErrorCode.UNSUPPORTED_VERSION), version=0)
        assert (await connection.negotiate()).version == then_asked
        request = await connection.receive()
        connection.answer(request, echo(request))
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        assert (await ask(peer, metadata("a"))).cluster_id == "a"
        peer.close()


# Order and limits


async def test_requests_are_pipelined_in_order_up_to_the_limit() -> None:
    received: list[Received] = []
    answered = 0
    arrived = asyncio.Condition()

    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        while True:
            received.append(await connection.receive())
            assert len(received) - answered <= 3
            async with arrived:
                arrived.notify()

    async with FakeNode(script) as node:
        peer = peer_of(node.port, limits=PeerLimits(max_in_flight=3))
        names = [f"topic {number}" for number in range(10)]
        finished: list[str] = []
        outcomes = [ask(peer, metadata(name)) for name in names]
        for outcome in outcomes:
            outcome.add_done_callback(lambda done: finished.append(done.result().cluster_id))
        for outcome in outcomes:
            async with arrived:
                while len(received) < min(answered + 3, 10):
                    await arrived.wait()
            request, answered = received[answered], answered + 1
            node.connections[0].answer(request, echo(request))
            await outcome
        assert [each.message.topics[0].name for each in received] == finished == names
        peer.close()


async def test_a_full_queue_refuses_more(refusing_port: int) -> None:
    peer = peer_of(refusing_port, limits=PeerLimits(max_queued=2))
    waiting = [ask(peer, metadata("a")) for _ in range(2)]
    assert_error(await ask(peer, metadata("b")), ErrorCode.NETWORK_EXCEPTION, "2 requests are waiting")
    assert not any(each.done() for each in waiting)
    peer.close()
    for each in waiting:
        assert_error(await each, ErrorCode.NETWORK_EXCEPTION)


async def test_a_callback_that_sends_and_one_that_raises_do_not_disturb_others(unhandled: list[dict[str, Any]]) -> None:
    async with FakeNode(serve_metadata) as node:
        peer = peer_of(node.port)
        following: list[asyncio.Future[Any]] = []

        def raises(response: MetadataResponse) -> None:
            following.append(ask(peer, metadata("following")))
            raise ValueError(response.cluster_id)

        peer.send(metadata("first"), 60_000, raises)
        assert (await ask(peer, metadata("second"))).cluster_id == "second"
        assert (await following[0]).cluster_id == "following"
        assert str(unhandled.pop()["exception"]) == "first"
        peer.close()


# Large messages


async def test_large_responses_of_several_requests_arrive_whole() -> None:
    contents = [bytes([number]) * (1 + number * (1 << 20)) for number in range(6)]

    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        for content in contents:
            request = await connection.receive()
            partition = PartitionData(records=content)
            connection.answer(request, FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]))
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        seen: list[bytes] = []
        done = asyncio.Event()

        def then(response: FetchResponse) -> None:
            records = response.responses[0].partitions[0].records
            assert isinstance(records, memoryview)  # not a copy
            seen.append(bytes(records))
            if len(seen) == len(contents):
                done.set()

        for _ in contents:
            peer.send(FetchRequest(), 60_000, then)
        await done.wait()
        assert seen == contents
        peer.close()


async def test_a_request_larger_than_the_sockets_buffers_is_sent_piece_by_piece() -> None:
    content = random.Random(5).randbytes(16 << 20)

    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        request = await connection.receive()
        assert request.message.topic_data[0].partition_data[0].records == content
        connection.answer(request, ProduceResponse())
        request = await connection.receive()
        connection.answer(request, echo(request))
        await connection.until_closed()

    writers: list[str] = []

    class Loop:
        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        def add_writer(self, *arguments: Any) -> None:
            writers.append("added")
            loop.add_writer(*arguments)

        def remove_writer(self, fd: int) -> None:
            if loop.remove_writer(fd):
                writers.append("removed")

    loop = asyncio.get_running_loop()
    async with FakeNode(script) as node:
        peer = peer_of(node.port, loop=Loop())
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, memoryview(content))])]
        large = ask(peer, ProduceRequest(None, -1, 1000, data))
        small = ask(peer, metadata("a"))
        assert isinstance(await large, ProduceResponse)
        assert (await small).cluster_id == "a"
        assert (
            writers.count("added") == writers.count("removed") >= 2
        )  # while connecting, and while the socket was full
        peer.close()


async def test_the_memory_of_a_large_response_is_freed_after_a_small_one() -> None:
    async def script(connection: NodeConnection) -> None:
        await connection.negotiate()
        for size in (16 << 20, 1):
            request = await connection.receive()
            partition = PartitionData(records=bytes(size))
            connection.answer(request, FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]))
            await connection.writer.drain()
        await connection.until_closed()

    async with FakeNode(script) as node:
        peer = peer_of(node.port)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(2):
                await ask(peer, FetchRequest())
            await asyncio.sleep(0)  # this step of the task was begun by the response, and holds it
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak - before > 16 << 20
        assert after - before < 4 << 20
        peer.close()
