"""A node's place in the quorum: its settings, where it finds the others, and what it does with their news."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import StartError
from barnabas.model.ports import Address

if TYPE_CHECKING:
    from barnabas.node.node import Node


def bootstrap_addresses(settings: BrokerSettings) -> list[Address]:
    """controller.quorum.bootstrap.servers, or the addresses in the older controller.quorum.voters."""
    listed = list(settings.controller_quorum_bootstrap_servers)
    listed += [voter.partition("@")[2] for voter in settings.controller_quorum_voters]
    return [_address(text) for text in listed]


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise StartError(
            f"Invalid value {text} for configuration controller.quorum.bootstrap.servers: write HOST:PORT."
        )
    return Address(host.strip("[]"), int(port))


class Listener:
    """Gets the news of the quorum (``raft_driver.QuorumListener``)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def committed_offset(self) -> int:
        return self._node.metadata.committed.next_offset

    @committed_offset.setter
    def committed_offset(self, _: int) -> None:
        raise AttributeError("it follows from the committed image")

    def on_committed(self, batch: Any) -> None:
        self._node.metadata.replay(
            batch.records,
            next_offset=batch.next_offset,
            raft_epoch=batch.raft_epoch,
            timestamp_ms=batch.timestamp_ms,
        )

    def on_snapshot(self, snapshot: Any) -> None:
        self._node.metadata.install(
            snapshot.records,
            next_offset=snapshot.end_offset,
            raft_epoch=snapshot.raft_epoch,
            timestamp_ms=snapshot.timestamp_ms,
        )

    def on_leader(self, leader_id: int, raft_epoch: int) -> None:
        if leader_id >= 0:
            self._node.lifecycle.on_controller()

    def on_leadership(self, raft_epoch: int) -> None:
        if self._node.controller is not None:
            self._node.controller.activate()

    def on_resigned(self) -> None:
        if self._node.controller is not None:
            self._node.controller.deactivate()

    def on_high_watermark(self) -> None:
        if self._node.controller is not None:
            self._node.controller.on_high_watermark()
