"""Connections to other nodes: one peer for each address and lane (``model.ports.Network``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas.model.ports import Address, Random
from barnabas.net.peer import Peer, PeerLimits


class PeerNetwork:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        client_id: Callable[[], str],
        random: Random,
        limits: PeerLimits,
        report: Callable[..., None],
    ) -> None:
        self._loop = loop
        self._client_id = client_id
        self._random = random
        self._limits = limits
        self._report = report
        self._peers: dict[tuple[Address, str], Peer] = {}
        self.on_refused: Callable[[Address], None] = lambda _: None

    def send(
        self,
        address: Address,
        lane: str,
        request: Any,
        timeout_ms: int,
        then: Callable[[Any], None],
        *,
        version: int | None = None,
    ) -> None:
        peer = self._peers.get((address, lane))
        if peer is None:
            peer = self._peers[address, lane] = Peer(
                loop=self._loop,
                host=address.host,
                port=address.port,
                client_id=self._client_id(),
                random=self._random,
                limits=self._limits,
                report=self._report,
                on_refused=lambda: self.on_refused(address),
            )
        peer.send(request, timeout_ms, then, version=version)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
