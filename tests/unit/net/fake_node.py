"""A node that answers as a test's script says, and a peer that asks it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Self

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.net.peer import Peer, PeerLimits
from barnabas.wire import catalogue, codec, header
from barnabas.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.schema import Message, versions_of

PATIENCE_MS = 120_000
LIMITS = PeerLimits(backoff_ms=1, max_backoff_ms=4)

OFFERED = {
    key: (versions_of(catalogue.api_classes(key)[0]).first, versions_of(catalogue.api_classes(key)[0]).last)
    for key in catalogue.APIS
}


class Received(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Any


class NodeConnection:
    """The node's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def receive(self) -> Received:
        """The next request. Raises IncompleteReadError when the peer has closed."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = await self.reader.readexactly(size)
        api_key, version, correlation_id, client_id, body = header.decode_request_header(frame, 0, size)
        message, end = codec.decode(catalogue.api_classes(api_key)[0], version, frame, body)
        assert end == size
        return Received(api_key, version, correlation_id, client_id, message)

    def answer(self, request: Received, response: Message, *, version: int | None = None) -> None:
        self.send(response_frame(request, response, version=version))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def negotiate(self, offered: dict[int, tuple[int, int]] | None = None) -> Received:
        request = await self.receive()
        self.answer(request, versions_response(offered))
        return request

    async def until_closed(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def response_frame(request: Received, response: Message, *, version: int | None = None) -> bytes:
    version = request.version if version is None else version
    return b"".join(bytes(chunk) for chunk in header.frame_response(response, version, request.correlation_id))


def versions_response(offered: dict[int, tuple[int, int]] | None = None, error_code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(key, first, last) for key, (first, last) in (OFFERED if offered is None else offered).items()]
    return ApiVersionsResponse(error_code, keys)


Script = Callable[[NodeConnection], Awaitable[None]]


class FakeNode:
    """Runs the scripts in turn, one for each connection; the last one for all that follow."""

    def __init__(self, *scripts: Script, sock: socket.socket | None = None) -> None:
        self._scripts = scripts
        self._socket = sock or unused_port()[0]
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: list[NodeConnection] = []
        self.failures: list[BaseException] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, sock=self._socket)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        assert self.failures == []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = NodeConnection(reader, writer)
        script = self._scripts[min(len(self.connections), len(self._scripts) - 1)]
        self.connections.append(connection)
        try:
            await script(connection)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except BaseException as problem:
            self.failures.append(problem)
        finally:
            if task.cancelling():
                writer.transport.abort()
            else:
                await connection.close()
            self._tasks.discard(task)


async def serve_metadata(connection: NodeConnection) -> None:
    """Answers everything, with the name that the request had."""
    await connection.negotiate()
    while True:
        request = await connection.receive()
        connection.answer(request, echo(request))


def echo(request: Received) -> MetadataResponse:
    return MetadataResponse(cluster_id=request.message.topics[0].name)


def metadata(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


class Reports:
    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def __call__(self, event: str, **more: Any) -> None:
        self.all.append({"event": event, **more})


def peer_of(port: int, *, host: str = "127.0.0.1", limits: PeerLimits = LIMITS, **more: Any) -> Peer:
    given = {
        "loop": asyncio.get_running_loop(),
        "client_id": "node 1",
        "random": random.Random(7),
        "report": Reports(),
        **more,
    }
    return Peer(host=host, port=port, limits=limits, **given)


def ask(
    peer: Peer, request: Message, *, timeout_ms: int = PATIENCE_MS, version: int | None = None
) -> asyncio.Future[Any]:
    """A second outcome would be an InvalidStateError, which the fixture ``unhandled`` finds."""
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    peer.send(request, timeout_ms, outcome.set_result, version=version)
    assert not outcome.done()
    return outcome


def assert_error(outcome: Any, code: ErrorCode, *texts: str) -> None:
    assert isinstance(outcome, ApiError), outcome
    assert outcome.code is code
    for text in texts:
        assert text in str(outcome)


def unused_port() -> tuple[socket.socket, int]:
    """A port that is bound, so that it stays reserved, and not listening, so that it refuses."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock, sock.getsockname()[1]
