"""The metadata machine: decide and replay.

    request --decide--> records + reply        nothing has changed yet
    records --replay--> the next image         in the order of the log

A request is decided against the latest image, which may be ahead of what is committed; the runtime releases the
reply when the commit has caught up with what the decision saw. The only state outside the image is when each
broker was last heard of: it is lost with the controller, as in Kafka, and brokers prove themselves anew.

A broker's life:

    (unknown) --register--> fenced --heartbeat, caught up--> serving --want_shut_down--> in controlled shutdown
        fenced <--session expired, or a new incarnation registers-- serving           --leads nothing--> fenced
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.core.decision import Decision
from barnabas.core.metadata import configs, topics
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import ZERO_UUID
from barnabas.model.ports import Random
from barnabas.model.settings import InvalidSetting, Setting, described
from barnabas.model.topic_settings import TopicSettings
from barnabas.wire.api import (
    allocate_producer_ids,
    alter_configs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_control, metadata_nodes, metadata_topics

PRODUCER_ID_BLOCK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPolicy:
    """What the machine needs to know of the node's own settings."""

    node_id: int
    cluster_id: str
    default_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enabled: bool = True
    broker_session_timeout_ms: int = 9000
    static_settings: Mapping[str, str]
    """The node's file, by key: gives topics their defaults."""
    broker_settings: Mapping[str, Setting]
    """Every broker setting that this build knows, by key."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Asked by the runtime when the log is new: the features and settings a cluster begins with."""

    records: Sequence[Message]


@dataclass(frozen=True, slots=True)
class ExpireSessions:
    """Asked by the runtime from time to time."""


class MetadataMachine:
    def __init__(self, policy: MetadataPolicy, random: Random) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._policy = policy
        self._random = random
        self._sessions: dict[int, int] = {}
        """Broker -> monotonic deadline of its session. In memory only."""

    # Decide

    def decide(self, token: object, request: object, now_ms: int) -> Decision:
        """``now_ms`` is monotonic. Raises ApiError only for what has no place in the response."""
        decide = self._DECIDE.get(type(request))
        if decide is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not a metadata request")
        records, reply = decide(self, request, now_ms)
        return Decision(records=records, replies=[(token, reply)])

    def _create_topics(self, request: create_topics.CreateTopicsRequest, now_ms: int) -> tuple[list[Message], Message]:
        names = [topic.name for topic in request.topics]
        records: list[Message] = []
        results = []
        for topic in request.topics:
            result = create_topics.CreatableTopicResult(name=topic.name)
            try:
                if names.count(topic.name) > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += self._create_topic(topic, result)
            except ApiError as problem:
                result.error_code, result.error_message = problem.code, problem.message
            results.append(result)
        if request.validate_only:
            records = []
            for result in results:
                result.topic_id = ZERO_UUID
        return records, create_topics.CreateTopicsResponse(topics=results)

    def _create_topic(
        self, topic: create_topics.CreatableTopic, result: create_topics.CreatableTopicResult
    ) -> list[Message]:
        topics.check_name(topic.name)
        topics.check_free(self.image, topic.name)
        given = configs.check_topic_configs((config.name, config.value) for config in topic.configs)
        topic_id = topics.new_topic_id(self.image, self._random)
        assignments = self._assignments(topic)
        records: list[Message] = [metadata_topics.TopicRecord(name=topic.name, topic_id=topic_id)]
        records += [
            metadata_topics.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=key, value=value)
            for key, value in given.items()
        ]
        records += [
            topics.partition_record(self.image, topic_id, number, replicas)
            for number, replicas in enumerate(assignments)
        ]
        result.topic_id = topic_id
        result.num_partitions = len(assignments)
        result.replication_factor = len(assignments[0])
        result.configs = self._created_configs(given)
        return records

    def _assignments(self, topic: create_topics.CreatableTopic) -> list[list[int]]:
        if topic.assignments:
            if topic.num_partitions != -1 or topic.replication_factor != -1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "A manual partition assignment was specified, but numPartitions or replicationFactor was not -1.",
                )
            by_number = {entry.partition_index: list(entry.broker_ids) for entry in topic.assignments}
            if sorted(by_number) != list(range(len(topic.assignments))):
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
                )
            assignments = [by_number[number] for number in range(len(by_number))]
            for replicas in assignments:
                topics.check_assignment(self.image, replicas, len(assignments[0]))
            return assignments
        count = self._policy.default_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = self._policy.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        topics.check_partition_count(count)
        return topics.place(self.image, count, factor, 0, self._random)

    def _created_configs(self, given: Mapping[str, str]) -> list[create_topics.CreatableTopicConfigs]:
        """Every setting in force for the new topic, as CreateTopics answers it from version 5 (KIP-525)."""
        listed = []
        for key, (_, entry) in described(TopicSettings).items():
            if key in given:
                value: str | None = given[key]
                source = configs.ConfigSource.TOPIC
            else:
                origin = configs.origins(entry, self._policy.node_id, self.image, "", self._policy.static_settings)[0]
                value, source = origin.text, origin.source
            listed.append(create_topics.CreatableTopicConfigs(name=key, value=value, config_source=source))
        return listed

    def _delete_topics(self, request: delete_topics.DeleteTopicsRequest, now_ms: int) -> tuple[list[Message], Message]:
        wanted = [(state.name, state.topic_id) for state in request.topics]
        wanted += [(name, ZERO_UUID) for name in request.topic_names]
        records: list[Message] = []
        results = []
        for name, topic_id in wanted:
            result = delete_topics.DeletableTopicResult(name=name, topic_id=topic_id)
            try:
                if wanted.count((name, topic_id)) > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
                topic = self._find_topic(name, topic_id)
                result.name, result.topic_id = topic.name, topic.topic_id
                records.append(metadata_topics.RemoveTopicRecord(topic_id=topic.topic_id))
            except ApiError as problem:
                result.error_code, result.error_message = problem.code, problem.message
            results.append(result)
        return records, delete_topics.DeleteTopicsResponse(responses=results)

    def _find_topic(self, name: str | None, topic_id: bytes) -> Any:
        if not self._policy.delete_topic_enabled:
            raise ApiError(
                ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable is false."
            )
        if name is not None and topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        topic = self.image.topics.get(name) if name is not None else self.image.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name is not None else ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def _create_partitions(
        self, request: create_partitions.CreatePartitionsRequest, now_ms: int
    ) -> tuple[list[Message], Message]:
        names = [topic.name for topic in request.topics]
        records: list[Message] = []
        results = []
        for wanted in request.topics:
            result = create_partitions.CreatePartitionsTopicResult(name=wanted.name)
            try:
                if names.count(wanted.name) > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += self._add_partitions(wanted)
            except ApiError as problem:
                result.error_code, result.error_message = problem.code, problem.message
            results.append(result)
        if request.validate_only:
            records = []
        return records, create_partitions.CreatePartitionsResponse(results=results)

    def _add_partitions(self, wanted: create_partitions.CreatePartitionsTopic) -> list[Message]:
        topic = self.image.topics.get(wanted.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = len(topic.partitions)
        if wanted.count <= current:
            same = "already has" if wanted.count == current else "currently has"
            higher = "" if wanted.count == current else f", which is higher than the requested {wanted.count}"
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic {same} {current} partition(s){higher}.")
        added = wanted.count - current
        topics.check_partition_count(added)
        width = len(topic.partitions[0].replicas)
        if wanted.assignments is None:
            placed = topics.place(self.image, added, width, current, self._random)
        else:
            placed = [list(assignment.broker_ids) for assignment in wanted.assignments]
            if len(placed) != added:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Attempted to add {added} additional partition(s), but only {len(placed)} assignment(s) were specified.",
                )
            for replicas in placed:
                topics.check_assignment(self.image, replicas, width)
        return [
            topics.partition_record(self.image, topic.topic_id, current + n, replicas)
            for n, replicas in enumerate(placed)
        ]

    def _alter_incrementally(
        self, request: incremental_alter_configs.IncrementalAlterConfigsRequest, now_ms: int
    ) -> tuple[list[Message], Message]:
        answer = incremental_alter_configs.AlterConfigsResourceResponse
        keys = [(resource.resource_type, resource.resource_name) for resource in request.resources]
        records: list[Message] = []
        responses = []
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            response = answer(resource_type=key[0], resource_name=key[1])
            try:
                if keys.count(key) > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate resources.")
                before = self.image.configs.get(key, {})
                changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
                settings = configs.resource_settings(key[0], self._policy.broker_settings)
                records += self._change_configs(key, configs.altered(before, changes, settings))
            except ApiError as problem:
                response.error_code, response.error_message = problem.code, problem.message
            responses.append(response)
        if request.validate_only:
            records = []
        return records, incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)

    def _alter(self, request: alter_configs.AlterConfigsRequest, now_ms: int) -> tuple[list[Message], Message]:
        """The older call, which replaces everything that a resource has."""
        records: list[Message] = []
        responses = []
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            response = alter_configs.AlterConfigsResourceResponse(resource_type=key[0], resource_name=key[1])
            changes: dict[str, str | None] = dict.fromkeys(self.image.configs.get(key, {}))
            changes |= {config.name: config.value for config in resource.configs}
            try:
                records += self._change_configs(key, changes)
            except ApiError as problem:
                response.error_code, response.error_message = problem.code, problem.message
            responses.append(response)
        if request.validate_only:
            records = []
        return records, alter_configs.AlterConfigsResponse(responses=responses)

    def _change_configs(self, resource: tuple[int, str], changes: Mapping[str, str | None]) -> list[Message]:
        resource_type, name = resource
        given = [(key, text) for key, text in changes.items() if text is not None]
        if resource_type == TOPIC_RESOURCE:
            if name not in self.image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            configs.check_topic_configs(given)
        elif resource_type == BROKER_RESOURCE:
            self._check_broker_configs(name, given)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")
        before = self.image.configs.get(resource, {})
        return [
            metadata_topics.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=text)
            for key, text in changes.items()
            if before.get(key) != text
        ]

    def _check_broker_configs(self, name: str, given: Sequence[tuple[str, str]]) -> None:
        if name and not (name.isdigit() and int(name) in self.image.brokers):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker '{name}' is not registered; give its id, or '' for all.")
        for key, text in given:
            entry = self._policy.broker_settings.get(key)
            if entry is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {key}")
            if not entry.dynamic:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {key}")
            try:
                entry.parse(text)
            except InvalidSetting as problem:
                raise ApiError(ErrorCode.INVALID_CONFIG, str(problem)) from None

    def _register(
        self, request: broker_registration.BrokerRegistrationRequest, now_ms: int
    ) -> tuple[list[Message], Message]:
        response = broker_registration.BrokerRegistrationResponse()
        if request.cluster_id != self._policy.cluster_id:
            response.error_code = ErrorCode.INCONSISTENT_CLUSTER_ID
            return [], response
        before = self.image.brokers.get(request.broker_id)
        if (
            before is not None
            and before.incarnation_id != request.incarnation_id
            and self._alive(request.broker_id, now_ms)
        ):
            response.error_code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
            return [], response
        self._sessions[request.broker_id] = now_ms + self._policy.broker_session_timeout_ms
        if before is not None and before.incarnation_id == request.incarnation_id:
            response.broker_epoch = before.broker_epoch
            return [], response
        response.broker_epoch = self.image.next_offset
        records: list[Message] = [self._registration(request, response.broker_epoch)]
        records += topics.leaders_lost(self.image, request.broker_id, controlled=False)
        return records, response

    def _alive(self, broker_id: int, now_ms: int) -> bool:
        """A broker inside the controller's own process has died with it: its session cannot be alive."""
        return broker_id != self._policy.node_id and self._sessions.get(broker_id, now_ms) > now_ms

    @staticmethod
    def _registration(request: broker_registration.BrokerRegistrationRequest, broker_epoch: int) -> Message:
        return metadata_nodes.RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=broker_epoch,
            end_points=[
                metadata_nodes.BrokerEndpoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in request.listeners
            ],
            features=[
                metadata_nodes.BrokerFeature(
                    name=f.name,
                    min_supported_version=f.min_supported_version,
                    max_supported_version=f.max_supported_version,
                )
                for f in request.features
            ],
            rack=request.rack,
            fenced=True,
            log_dirs=list(request.log_dirs),
        )

    def _heartbeat(
        self, request: broker_heartbeat.BrokerHeartbeatRequest, now_ms: int
    ) -> tuple[list[Message], Message]:
        broker = self.image.brokers.get(request.broker_id)
        response = broker_heartbeat.BrokerHeartbeatResponse()
        if broker is None or broker.broker_epoch != request.broker_epoch:
            response.error_code = ErrorCode.BROKER_ID_NOT_REGISTERED if broker is None else ErrorCode.STALE_BROKER_EPOCH
            return [], response
        self._sessions[request.broker_id] = now_ms + self._policy.broker_session_timeout_ms
        response.is_caught_up = request.current_metadata_offset >= request.broker_epoch
        change = metadata_nodes.BrokerRegistrationChangeRecord(
            broker_id=broker.node_id, broker_epoch=broker.broker_epoch
        )
        records: list[Message] = []
        if request.want_shut_down:
            if broker.serves:
                change.in_controlled_shutdown = 1
                records = [change, *topics.leaders_lost(self.image, broker.node_id, controlled=True)]
            elif not broker.fenced:
                change.fenced = 1
                records = [change]
            response.should_shut_down = broker.fenced or not broker.serves
            response.is_fenced = broker.fenced or not broker.serves
            return records, response
        if broker.fenced and response.is_caught_up and not request.want_fence:
            change.fenced = -1
            if broker.in_controlled_shutdown:
                change.in_controlled_shutdown = -1
            records = [change, *topics.leaders_gained(self.image, broker.node_id)]
        response.is_fenced = broker.fenced and not records
        return records, response

    def _expire(self, request: ExpireSessions, now_ms: int) -> tuple[list[Message], None]:
        records: list[Message] = []
        for node_id in sorted(node for node, deadline in self._sessions.items() if deadline <= now_ms):
            del self._sessions[node_id]
            broker = self.image.brokers.get(node_id)
            if broker is not None and not broker.fenced:
                records.append(
                    metadata_nodes.BrokerRegistrationChangeRecord(
                        broker_id=node_id, broker_epoch=broker.broker_epoch, fenced=1
                    )
                )
                records += topics.leaders_lost(self.image, node_id, controlled=False)
        return records, None

    def _register_controller(
        self, request: controller_registration.ControllerRegistrationRequest, now_ms: int
    ) -> tuple[list[Message], Message]:
        record = metadata_nodes.RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            end_points=[
                metadata_nodes.ControllerEndpoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in request.listeners
            ],
            features=[
                metadata_nodes.ControllerFeature(
                    name=f.name,
                    min_supported_version=f.min_supported_version,
                    max_supported_version=f.max_supported_version,
                )
                for f in request.features
            ],
        )
        return [record], controller_registration.ControllerRegistrationResponse()

    def _allocate(
        self, request: allocate_producer_ids.AllocateProducerIdsRequest, now_ms: int
    ) -> tuple[list[Message], Message]:
        broker = self.image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return [], allocate_producer_ids.AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        first = self.image.next_producer_id
        record = metadata_control.ProducerIdsRecord(
            broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK
        )
        reply = allocate_producer_ids.AllocateProducerIdsResponse(
            producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK
        )
        return [record], reply

    def _bootstrap(self, request: Bootstrap, now_ms: int) -> tuple[list[Message], None]:
        """As Kafka writes them: inside a metadata transaction, so that a reader sees all of them or none."""
        begin = metadata_control.BeginTransactionRecord(name="Bootstrap records")
        return [begin, *request.records, metadata_control.EndTransactionRecord()], None

    _DECIDE: Mapping[type, Callable[[MetadataMachine, Any, int], tuple[list[Message], Message | None]]] = {
        create_topics.CreateTopicsRequest: _create_topics,
        delete_topics.DeleteTopicsRequest: _delete_topics,
        create_partitions.CreatePartitionsRequest: _create_partitions,
        incremental_alter_configs.IncrementalAlterConfigsRequest: _alter_incrementally,
        alter_configs.AlterConfigsRequest: _alter,
        broker_registration.BrokerRegistrationRequest: _register,
        broker_heartbeat.BrokerHeartbeatRequest: _heartbeat,
        controller_registration.ControllerRegistrationRequest: _register_controller,
        allocate_producer_ids.AllocateProducerIdsRequest: _allocate,
        Bootstrap: _bootstrap,
        ExpireSessions: _expire,
    }

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
