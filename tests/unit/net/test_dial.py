"""Attempts to connect: names, several addresses, time-outs, and what is left after them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from barnabas.net.dial import Dial, Dialled, is_connected_to_itself
from tests.unit.net.fake_node import PATIENCE_MS

pytestmark = pytest.mark.usefixtures("unhandled")


async def dial(host: str, port: int, timeout_ms: int = PATIENCE_MS) -> Dialled | OSError:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Dialled | OSError] = loop.create_future()
    Dial(loop, host, port, timeout_ms, outcome.set_result)
    return await outcome


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    def found(*_: Any, flags: int = 0, **__: Any) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)


async def test_the_next_address_is_tried_after_one_that_refuses(
    monkeypatch: pytest.MonkeyPatch, refusing_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        resolve_to(monkeypatch, ("127.0.0.1", refusing_port), ("127.0.0.1", 70_000), ("127.0.0.1", port))
        outcome = await dial("somewhere", 1)
        assert isinstance(outcome, Dialled)
        with outcome.socket:
            assert outcome.ip == "127.0.0.1"
            assert outcome.socket.getpeername()[1] == port
            assert not outcome.socket.getblocking()


async def test_the_next_address_is_tried_after_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, refusing_port: int
) -> None:
    accepted: list[socket.socket] = []
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        resolve_to(monkeypatch, full.getsockname(), ("127.0.0.1", refusing_port))
        while isinstance(outcome := await dial("somewhere", 1, 50), Dialled):  # until the kernel's queue is full
            accepted.append(outcome.socket)
        assert isinstance(outcome, ConnectionRefusedError)
        for each in accepted:
            each.close()


async def test_a_refusal_is_what_counts_among_errors(monkeypatch: pytest.MonkeyPatch, refusing_port: int) -> None:
    for addresses in (
        [("127.0.0.1", refusing_port), ("127.0.0.1", 70_000)],
        [("127.0.0.1", 70_000), ("127.0.0.1", refusing_port)],
    ):
        resolve_to(monkeypatch, *addresses)
        assert isinstance(await dial("somewhere", 1), ConnectionRefusedError)


async def test_names_and_ports_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("a" * 64, "nul\0"):
        outcome = await dial(host, 1)
        assert isinstance(outcome, OSError)
        assert "cannot resolve" in str(outcome)
    resolve_to(monkeypatch)
    assert "has no address" in str(await dial("somewhere", 1))
    resolve_to(monkeypatch, ("127.0.0.1", 70_000))
    assert "port" in str(await dial("somewhere", 1))


async def test_a_cancelled_attempt_calls_nobody_and_leaves_nothing_open() -> None:
    outcomes: list[Any] = []
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for host in ("127.0.0.1", "localhost"):
            for turns in range(3):
                attempt = Dial(loop, host, server.getsockname()[1], PATIENCE_MS, outcomes.append)
                for _ in range(turns):
                    await asyncio.sleep(0)
                made = len(outcomes)
                attempt.cancel()
                for _ in range(5):
                    await asyncio.sleep(0)
                assert len(outcomes) == made
    for outcome in outcomes:
        outcome.socket.close()


async def test_an_attempt_may_be_cancelled_when_its_name_has_just_been_resolved() -> None:
    class Loop:
        """Leaves the result of the resolver to the test."""

        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        def run_in_executor(self, *_: Any) -> asyncio.Future[Any]:
            return resolving

    loop = asyncio.get_running_loop()
    resolving: asyncio.Future[Any] = loop.create_future()
    outcomes: list[Any] = []
    attempt = Dial(Loop(), "somewhere", 1, PATIENCE_MS, outcomes.append)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    resolving.set_result([])
    attempt.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert outcomes == []


def test_a_socket_connected_to_itself_is_recognised() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        assert is_connected_to_itself(sock)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        assert not is_connected_to_itself(sock)
