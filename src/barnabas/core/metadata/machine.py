"""The metadata machine: decide and replay.

    request --decide--> records + reply        nothing has changed yet
    records --replay--> the next image         in the order of the log

A request is decided against the latest image, which may be ahead of the committed one; the runtime releases the reply
when everything that the decision depends on is committed. The rules are in ``topics``, ``configs`` and ``brokers``; the
only state outside the image is the time of each broker's last heartbeat (``brokers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from barnabas.core.decision import Decision
from barnabas.core.metadata.brokers import Brokers
from barnabas.core.metadata.configs import Configs
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.core.metadata.topics import Topics
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Random
from barnabas.model.settings import LONG_MAX
from barnabas.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.wire.api.alter_configs import AlterConfigsRequest
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest
from barnabas.wire.api.controller_registration import ControllerRegistrationRequest
from barnabas.wire.api.create_partitions import CreatePartitionsRequest
from barnabas.wire.api.create_topics import CreateTopicsRequest
from barnabas.wire.api.delete_topics import DeleteTopicsRequest
from barnabas.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_control

__all__ = ["PRODUCER_ID_BLOCK", "Bootstrap", "ExpireSessions", "MetadataMachine", "MetadataPolicy"]

PRODUCER_ID_BLOCK = 1000


class Bootstrap(Struct, frozen=True):
    """Asked by the runtime when the log is new: the features and settings a cluster begins with."""

    records: Sequence[Message]


class ExpireSessions(Struct, frozen=True):
    """Asked by the runtime from time to time."""


class MetadataMachine:
    def __init__(self, policy: MetadataPolicy, random: Random) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        brokers, configs, topics = Brokers(policy), Configs(policy), Topics(policy, random)
        self._decide: Mapping[type, Callable[[Any, int], Outcome]] = {
            CreateTopicsRequest: lambda request, _: topics.create(self.image, request),
            DeleteTopicsRequest: lambda request, _: topics.delete(self.image, request),
            CreatePartitionsRequest: lambda request, _: topics.add_partitions(self.image, request),
            IncrementalAlterConfigsRequest: lambda request, _: configs.alter_incrementally(self.image, request),
            AlterConfigsRequest: lambda request, _: configs.replace(self.image, request),
            BrokerRegistrationRequest: lambda request, now_ms: brokers.register(self.image, request, now_ms),
            BrokerHeartbeatRequest: lambda request, now_ms: brokers.heartbeat(self.image, request, now_ms),
            ExpireSessions: lambda _, now_ms: brokers.expire(self.image, now_ms),
            ControllerRegistrationRequest: lambda request, _: brokers.register_controller(request),
            AllocateProducerIdsRequest: lambda request, _: self._allocate_producer_ids(request),
            Bootstrap: lambda request, _: self._bootstrap(request),
        }

    # Decide

    def decide(self, token: object, request: object, now_ms: int) -> Decision:
        """``now_ms`` is monotonic. Raises ApiError only for what has no place in the response."""
        decide = self._decide.get(type(request))
        if decide is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not a metadata request")
        records, reply = decide(request, now_ms)
        return Decision(records=records, replies=[(token, reply)])

    def _allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Outcome:
        broker = self.image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return [], AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        first = self.image.next_producer_id
        if first > LONG_MAX - PRODUCER_ID_BLOCK:
            return [], AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        record = metadata_control.ProducerIdsRecord(
            broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK
        )
        return [record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK)

    def _bootstrap(self, request: Bootstrap) -> Outcome:
        """As Kafka writes them: inside a metadata transaction, so that a reader sees all of them or none."""
        begin = metadata_control.BeginTransactionRecord(name="Bootstrap records")
        return [begin, *request.records, metadata_control.EndTransactionRecord()], None

    # Replay

    def replay(
        self, records: Sequence[Message], *, next_offset: int, raft_epoch: int, timestamp_ms: int
    ) -> MetadataDelta:
        """Applies records in log order; ``image`` is then the state at ``next_offset``."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(next_offset=next_offset, raft_epoch=raft_epoch, timestamp_ms=timestamp_ms)
        return delta
