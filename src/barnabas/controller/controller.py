"""The controller of a node: active while the node leads the quorum, and decides about metadata then.

    standby --leadership, all before it is committed--> active --leadership lost--> standby

A standby answers NOT_CONTROLLER. An active controller decides over its own image, which is ahead of the committed one
by the decisions on their way; when leadership is lost, that image and the requests that wait are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.core.metadata.image import MetadataImage
from barnabas.core.metadata.machine import Activate, Bootstrap, BrokerRefused, MetadataMachine, MetadataPolicy
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Address, Clock, Random
from barnabas.runtime.cluster_metadata import ClusterMetadata
from barnabas.runtime.pipeline import Request
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.runtime.refusals import refusal_of
from barnabas.runtime.shard import Shard, Then
from barnabas.wire.schema import Message


class Controller:
    def __init__(
        self,
        *,
        metadata: ClusterMetadata,
        policy: MetadataPolicy,
        random: Random,
        bootstrap: Callable[[], list[Message]],
        clock: Clock,
        report: Callable[..., None],
    ) -> None:
        """``bootstrap`` gives the first records of a new cluster."""
        self.metadata = metadata
        self.clock = clock
        self.driver: RaftDriver
        """Set once, before the quorum starts."""
        self.policy = policy
        self._random = random
        self._bootstrap = bootstrap
        self._report = report
        self._shard: Shard | None = None

    @property
    def committed(self) -> MetadataImage:
        return self.metadata.committed

    @property
    def is_active(self) -> bool:
        return self._shard is not None

    def activate(self) -> None:
        """This node leads the quorum, and all before its first record is committed."""
        machine = MetadataMachine(self.policy, self._random, self.committed, lambda: self.driver.log_end_offset)
        self._shard = Shard(machine, self.driver, self.clock, self.metadata.commit)
        if not self.committed.features:
            self._shard.submit(Bootstrap(self._bootstrap()), self._bootstrapped)
        self._shard.submit(Activate(self.driver.machine.last_leader), lambda _: None)

    def _bootstrapped(self, outcome: Any) -> None:
        if isinstance(outcome, ApiError):
            self._report("the first records of the metadata log could not be written", reason=str(outcome))

    def deactivate(self) -> None:
        """Requests that wait fail with NOT_CONTROLLER, and are sent again to the next one."""
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.fail(_not_controller())

    def on_high_watermark(self) -> None:
        if self._shard is not None:
            self._shard.advance()

    def on_refused(self, address: Address) -> None:
        """Nothing listens at that address, where a broker may have registered."""
        for broker in self.committed.brokers.values() if self._shard is not None else ():
            if any((endpoint.host, endpoint.port) == address for endpoint in broker.endpoints):
                self.submit(BrokerRefused(broker.node_id, broker.broker_epoch), lambda _: None)

    def submit(self, request: object, then: Then) -> None:
        if self._shard is None:
            then(_not_controller())
        else:
            self._shard.submit(request, then)

    def answer(self, request: Request, message: Message) -> None:
        """Decides a request of the pipeline; its reply leaves once the decision is committed."""

        def decided(response: Any) -> None:
            request.reply(refusal_of(message, response) if isinstance(response, ApiError) else response)

        self.submit(message, decided)


def _not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
