"""The transport of a node: to its own controller without a socket, to other nodes through the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Transport
from barnabas.runtime.local_peer import LocalPeer
from barnabas.wire.schema import Message


class NodeTransport:
    def __init__(self, node_id: int, own: LocalPeer, others: Transport | None) -> None:
        self._node_id = node_id
        self._own = own
        self._others = others

    def send(
        self,
        node_id: int,
        request: Message,
        timeout_ms: int,
        then: Callable[[Any], None],
        *,
        version: int | None = None,
    ) -> None:
        if node_id == self._node_id:
            self._own.send(request, timeout_ms, then, version=version)
        elif self._others is not None:
            self._others.send(node_id, request, timeout_ms, then, version=version)
        else:
            then(ApiError(ErrorCode.NETWORK_EXCEPTION, f"node {node_id} cannot be reached"))

    def close(self) -> None:
        self._own.close()
