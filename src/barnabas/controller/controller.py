"""The controller: decides about metadata, one request at a time, over the metadata log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.core.metadata.machine import Bootstrap, MetadataMachine
from barnabas.model.ports import Clock
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.runtime.shard import Shard, Then
from barnabas.wire.schema import Message

Publish = Callable[[MetadataDelta, MetadataImage], None]


class Controller:
    def __init__(self, machine: MetadataMachine, driver: RaftDriver, clock: Clock, publish: Publish) -> None:
        self.machine = machine
        self.driver = driver
        self.committed: MetadataImage = EMPTY_IMAGE
        """The latest image that no failover can undo."""
        self._publish = publish
        self._shard = Shard(machine, driver, clock, self._on_commit)

    def submit(self, request: Message | Bootstrap, then: Then) -> None:
        """``then`` gets the response once it is committed, or the ApiError that stands for it."""
        self._shard.submit(request, then)

    def on_high_watermark(self) -> None:
        self._shard.advance()

    def _on_commit(self, delta: Any, image: Any) -> None:
        self.committed = image
        self._publish(delta, image)
