"""The metadata machine: decide and replay.

    request --decide--> records + reply        nothing has changed yet
    records --replay--> the next image         in the order of the log

A request is decided against the latest image, which may be ahead of the committed one; the runtime releases the reply
when everything that the decision depends on is committed. The rules are in the modules beside this one, by subject.

State outside the image is in memory only and is made again by ``Activate``: broker sessions, and the queues of
partitions that elections have yet to look at. The index is derived from the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from barnabas.core.decision import Decision, TimerFired
from barnabas.core.metadata import elections, leader_elections, reassignment, sessions
from barnabas.core.metadata.alter_partition import alter_partition
from barnabas.core.metadata.brokers import Brokers
from barnabas.core.metadata.configs import Configs
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.directories import assign_replicas
from barnabas.core.metadata.elections import Elections
from barnabas.core.metadata.feature_updates import update_features
from barnabas.core.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.core.metadata.index import PartitionIndex
from barnabas.core.metadata.leader_elections import LeaderBalance
from barnabas.core.metadata.min_in_sync import allows_unclean_elections, eligible_changes
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.core.metadata.registration import Registration
from barnabas.core.metadata.sessions import Sessions
from barnabas.core.metadata.topics import Topics
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Random
from barnabas.model.settings import LONG_MAX
from barnabas.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.wire.api.alter_configs import AlterConfigsRequest
from barnabas.wire.api.alter_partition import AlterPartitionRequest
from barnabas.wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest
from barnabas.wire.api.controller_registration import ControllerRegistrationRequest
from barnabas.wire.api.create_partitions import CreatePartitionsRequest
from barnabas.wire.api.create_topics import CreateTopicsRequest
from barnabas.wire.api.delete_topics import DeleteTopicsRequest
from barnabas.wire.api.elect_leaders import ElectLeadersRequest
from barnabas.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.api.unregister_broker import UnregisterBrokerRequest
from barnabas.wire.api.update_features import UpdateFeaturesRequest
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_control

__all__ = ["PRODUCER_ID_BLOCK", "Activate", "Bootstrap", "BrokerRefused", "MetadataMachine", "MetadataPolicy"]

PRODUCER_ID_BLOCK = 1000


class Bootstrap(Struct, frozen=True):
    """Asked by the runtime when the log is new: the features and settings a cluster begins with."""

    records: Sequence[Message]


class Activate(Struct, frozen=True):
    """Submitted by the runtime when this node has become the active controller and has replayed its log.

    Every unfenced broker gets a fresh session, and what a former controller left half-done is taken up.
    """

    last_leader: tuple[int, int] | None = None
    """(node, monotonic time) of the former leader as this node last heard of it."""


class BrokerRefused(Struct, frozen=True):
    """Submitted by the runtime when nothing listens where a broker has registered."""

    broker_id: int
    broker_epoch: int


class MetadataMachine:
    def __init__(
        self,
        policy: MetadataPolicy,
        random: Random,
        image: MetadataImage = EMPTY_IMAGE,
        log_end_offset: Callable[[], int] | None = None,
    ) -> None:
        """``image`` is the committed state that the machine begins with.

        ``log_end_offset`` says where the next record will be. The quorum writes records of its own between those of
        the machine, so that is not always the image's next offset, which is the default.
        """
        self.image = image
        self._log_end_offset = log_end_offset or (lambda: self.image.next_offset)
        self.policy = policy
        self.index = PartitionIndex.of(image)
        self._sessions = Sessions(policy)
        self._elections = Elections()
        self._balance = LeaderBalance(policy)
        self._brokers = Brokers(policy, self._sessions, self._elections)
        self._registration = Registration(policy, self._sessions)
        self._configs = Configs(policy)
        self._topics = Topics(policy, random)

    # Decide

    def decide(self, token: object, request: object, now_ms: int) -> Decision:
        """``now_ms`` is monotonic. Raises ApiError only for what has no place in the response."""
        decide = self._DECIDE.get(type(request))
        if decide is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not a metadata request")
        self._elections.before_decision(self.image, now_ms)
        records, reply = decide(self, request, now_ms)
        return Decision(records=records, replies=[(token, reply)], timers=self._timers(now_ms))

    def _timers(self, now_ms: int) -> list[tuple[str, int]]:
        """Those that are needed and not running."""
        return [
            *self._sessions.timer(self.image, now_ms),
            *self._elections.timer(now_ms),
            *self._balance.timer(now_ms),
        ]

    # The runtime's requests

    def _activate(self, request: Activate, now_ms: int) -> Outcome:
        self._sessions.activate(self.image, now_ms, request.last_leader)
        self._balance.activate()
        self._elections.resume(self.image, self.index)
        return self._elections.step(PartitionRules(self.image, self.policy)), None

    def _timer_fired(self, timer: TimerFired, now_ms: int) -> Outcome:
        if timer.name == sessions.TIMER:
            self._sessions.on_timer(now_ms)
            return self._brokers.expire(self.image, self.index, now_ms)
        if timer.name == elections.TIMER:
            self._elections.on_timer()
            return self._elections.step(PartitionRules(self.image, self.policy)), None
        if timer.name == leader_elections.TIMER:
            return self._balance.step(self.image, self.index), None
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no timer is called {timer.name}")

    def _bootstrap(self, request: Bootstrap, _: int) -> Outcome:
        """As Kafka writes them: inside a metadata transaction, so that a reader sees all of them or none."""
        begin = metadata_control.BeginTransactionRecord(name="Bootstrap records")
        return [begin, *request.records, metadata_control.EndTransactionRecord()], None

    # Brokers

    def _register(self, request: BrokerRegistrationRequest, now_ms: int) -> Outcome:
        return self._registration.register(self.image, self.index, request, now_ms, self._log_end_offset())

    def _register_controller(self, request: ControllerRegistrationRequest, _: int) -> Outcome:
        return self._registration.register_controller(self.image, request)

    def _heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Outcome:
        return self._brokers.heartbeat(self.image, self.index, request, now_ms)

    def _refused(self, request: BrokerRefused, now_ms: int) -> Outcome:
        broker = self.image.brokers.get(request.broker_id)
        if broker is None or broker.fenced or broker.broker_epoch != request.broker_epoch:
            return [], None
        self._sessions.refuse(broker.node_id, now_ms)
        return self._brokers.expire(self.image, self.index, now_ms)

    def _unregister(self, request: UnregisterBrokerRequest, _: int) -> Outcome:
        return self._brokers.unregister(self.image, self.index, request)

    # Topics and partitions

    def _create_topics(self, request: CreateTopicsRequest, _: int) -> Outcome:
        return self._topics.create(self.image, request)

    def _delete_topics(self, request: DeleteTopicsRequest, _: int) -> Outcome:
        return self._topics.delete(self.image, request)

    def _create_partitions(self, request: CreatePartitionsRequest, _: int) -> Outcome:
        return self._topics.add_partitions(self.image, request)

    def _alter_partition(self, request: AlterPartitionRequest, _: int) -> Outcome:
        return alter_partition(self.image, self.policy, request)

    def _reassign(self, request: AlterPartitionReassignmentsRequest, _: int) -> Outcome:
        return reassignment.alter(self.image, self.policy, request)

    def _list_reassignments(self, request: ListPartitionReassignmentsRequest, _: int) -> Outcome:
        return reassignment.list_ongoing(self.image, self.index, request)

    def _elect_leaders(self, request: ElectLeadersRequest, _: int) -> Outcome:
        return leader_elections.elect_leaders(self.image, self.policy, request)

    def _assign_replicas(self, request: AssignReplicasToDirsRequest, _: int) -> Outcome:
        return assign_replicas(self.image, self.policy, request)

    # Settings, features, producer ids

    def _alter_configs(self, request: IncrementalAlterConfigsRequest, _: int) -> Outcome:
        return self._with_consequences(*self._configs.alter_incrementally(self.image, request))

    def _replace_configs(self, request: AlterConfigsRequest, _: int) -> Outcome:
        return self._with_consequences(*self._configs.replace(self.image, request))

    def _with_consequences(self, records: list[Message], reply: Message | None) -> Outcome:
        """What changed settings mean for partitions."""
        if allows_unclean_elections(records):
            self._elections.queue(self.index.leaderless)
        return [*records, *eligible_changes(self.image, self.index, self.policy, records)], reply

    def _update_features(self, request: UpdateFeaturesRequest, _: int) -> Outcome:
        return update_features(self.image, self.index, self.policy, request)

    def _allocate_producer_ids(self, request: AllocateProducerIdsRequest, _: int) -> Outcome:
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

    # Replay

    def replay(
        self, records: Sequence[Message], *, next_offset: int, raft_epoch: int, timestamp_ms: int
    ) -> MetadataDelta:
        """Applies records in log order; ``image`` is then the state at ``next_offset``."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(next_offset=next_offset, raft_epoch=raft_epoch, timestamp_ms=timestamp_ms)
        self.index.apply(delta)
        return delta

    _DECIDE: ClassVar[Mapping[type, Callable[[MetadataMachine, Any, int], Outcome]]] = {
        Activate: _activate,
        TimerFired: _timer_fired,
        Bootstrap: _bootstrap,
        BrokerRefused: _refused,
        BrokerRegistrationRequest: _register,
        ControllerRegistrationRequest: _register_controller,
        BrokerHeartbeatRequest: _heartbeat,
        UnregisterBrokerRequest: _unregister,
        CreateTopicsRequest: _create_topics,
        DeleteTopicsRequest: _delete_topics,
        CreatePartitionsRequest: _create_partitions,
        AlterPartitionRequest: _alter_partition,
        AlterPartitionReassignmentsRequest: _reassign,
        ListPartitionReassignmentsRequest: _list_reassignments,
        ElectLeadersRequest: _elect_leaders,
        AssignReplicasToDirsRequest: _assign_replicas,
        IncrementalAlterConfigsRequest: _alter_configs,
        AlterConfigsRequest: _replace_configs,
        UpdateFeaturesRequest: _update_features,
        AllocateProducerIdsRequest: _allocate_producer_ids,
    }
