"""The controller: decides about metadata, one request at a time, over the metadata log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.core.metadata.machine import Bootstrap, MetadataMachine
from barnabas.model.errors import ApiError
from barnabas.model.ports import Clock
from barnabas.runtime.pipeline import Request
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.runtime.refusals import refusal_of
from barnabas.runtime.shard import Shard, Then
from barnabas.wire.schema import Message

Publish = Callable[[MetadataDelta, MetadataImage], None]


class Controller:
    def __init__(self, machine: MetadataMachine, driver: RaftDriver, clock: Clock, publish: Publish) -> None:
        self.machine = machine
        self.driver = driver
        self.clock = clock
        self.committed: MetadataImage = EMPTY_IMAGE
        """The latest image that no failover can undo."""
        self._publish = publish
        self._shard = Shard(machine, driver, clock, self._on_commit)

    def answer(self, request: Request, message: Message) -> None:
        """Decides a request of the pipeline; its reply leaves once the decision is committed."""

        def decided(response: Any) -> None:
            request.reply(refusal_of(message, response) if isinstance(response, ApiError) else response)

        self._shard.submit(message, decided)

    def bootstrap(self, records: list[Message], then: Then) -> None:
        """The first records of a new cluster."""
        self._shard.submit(Bootstrap(records), then)

    def on_high_watermark(self) -> None:
        self._shard.advance()

    def _on_commit(self, delta: MetadataDelta) -> None:
        self.committed = delta.result
        self._publish(delta, delta.result)
