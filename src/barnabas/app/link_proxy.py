"""A proxy before the nodes of a cluster that can cut the links between them, in one direction or both.

Each node is reached through ports of the proxy, which it advertises. The first request of a connection tells who has
made it: nodes name themselves ``broker-N`` in their request headers; everybody else is a client. What crosses a link
that is cut is held back and delivered when the link heals, as TCP does; connections stay open.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import threading
from collections.abc import Iterable

CLIENT = 0
"""Stands for everybody who is not a node."""
CHUNK_BYTES = 256 << 10
_NODE = re.compile(rb"broker-(\d+)")
_HEADER = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, length of the client id."""


class LinkProxy:
    def __init__(self, host: str) -> None:
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._cut: set[tuple[int, int]] = set()
        self._changed: asyncio.Condition | None = None
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="barnabas-links", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._changed = asyncio.Condition()
        self._loop.run_forever()

    # From the thread of the owner

    def listen(self, node_id: int, target_port: int) -> int:
        """Opens a port that leads to a node's; returns it."""
        return asyncio.run_coroutine_threadsafe(self._listen(node_id, target_port), self._loop).result()

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        """(sender, receiver) of each link that carries nothing from now on."""
        asyncio.run_coroutine_threadsafe(self._set({*self._cut, *links}), self._loop).result()

    def heal(self, links: Iterable[tuple[int, int]] | None = None) -> None:
        """All links, or these."""
        rest = set() if links is None else self._cut - set(links)
        asyncio.run_coroutine_threadsafe(self._set(rest), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # On the loop

    async def _listen(self, node_id: int, target_port: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._carry(node_id, target_port, reader, writer)
            finally:
                self._tasks.discard(task)

        server = await asyncio.start_server(accept, self._host, 0, limit=CHUNK_BYTES)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _set(self, cut: set[tuple[int, int]]) -> None:
        assert self._changed is not None
        async with self._changed:
            self._cut = cut
            self._changed.notify_all()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(
        self, node_id: int, target_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        target: asyncio.StreamWriter | None = None
        try:
            first = await reader.readexactly(_HEADER.size)
            rest = await reader.readexactly(max(0, _HEADER.unpack(first)[4]))
            sender = _node_in(rest)
            await self._until_open(sender, node_id)
            source, target = await asyncio.open_connection(self._host, target_port, limit=CHUNK_BYTES)
            target.write(first + rest)
            halves = [
                asyncio.ensure_future(self._pump(reader, target, sender, node_id)),
                asyncio.ensure_future(self._pump(source, writer, node_id, sender)),
            ]
            try:
                await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for half in halves:
                    half.cancel()
                await asyncio.gather(*halves, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, target):
                if each is not None:
                    each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: int, receiver: int
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._until_open(sender, receiver)
                writer.write(data)
                await writer.drain()
            await self._until_open(sender, receiver)

    async def _until_open(self, sender: int, receiver: int) -> None:
        if (sender, receiver) not in self._cut:
            return
        assert self._changed is not None
        async with self._changed:
            await self._changed.wait_for(lambda: (sender, receiver) not in self._cut)


def _node_in(client_id: bytes) -> int:
    match = _NODE.fullmatch(client_id)
    return int(match[1]) if match is not None else CLIENT
