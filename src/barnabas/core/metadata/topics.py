"""Decisions about topics and partitions: create, delete, add partitions.

The topics of one request are decided in order: each sees the names and partitions of those before it, although nothing
is appended yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from barnabas.core.metadata import configs, placement
from barnabas.core.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Uuid, uuid_text
from barnabas.model.ports import Random
from barnabas.model.settings import described
from barnabas.model.topic_settings import TopicSettings
from barnabas.wire.api import create_partitions, create_topics, delete_topics
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_topics

MAX_NAME_LENGTH = 249
MAX_PARTITIONS_PER_REQUEST = 10_000
"""More in one request would block all others: it is one append, one sync and one image."""

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str) -> None:
    """Kafka's rules; they also keep a topic's name from being any other path than its own folder."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = "'.' or '..' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"the length of '{name[:32]}…' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.issuperset(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def is_legal(name: str) -> bool:
    try:
        check_name(name)
    except ApiError:
        return False
    return True


class _Request:
    """What the topics of one request have taken so far."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.partitions = 0
        self._ids: set[bytes] = set()
        self._folded: dict[str, str] | None = None

    def take_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{METADATA_TOPIC} is not a topic of users.")
        check_name(name)
        if name in self.image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            # Metric names replace dots by underscores: two topics must not become one there.
            if self._folded is None:
                self._folded = {other.replace(".", "_"): other for other in self.image.topics}
            other = self._folded.get(name.replace(".", "_"))
            if other is not None:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def took(self, name: str, topic_id: bytes, partitions: int) -> None:
        """The topic will be created: only now do the others of the request collide with it."""
        self._ids.add(topic_id)
        self.partitions += partitions
        if self._folded is not None:
            self._folded[name.replace(".", "_")] = name

    def new_id(self, random: Random) -> Uuid:
        while True:
            candidate = Uuid(random.randbytes(16))
            reserved = candidate in (ZERO_UUID, METADATA_TOPIC_ID) or uuid_text(candidate).startswith("-")
            # Kafka too leaves out those that a command line would take for an option.
            if not reserved and candidate not in self.image.topics_by_id and candidate not in self._ids:
                return candidate

    def check_partition_count(self, count: int) -> None:
        if count <= 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        if self.partitions + count > MAX_PARTITIONS_PER_REQUEST:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"{self.partitions + count} partitions in one request; at most {MAX_PARTITIONS_PER_REQUEST} are taken.",
            )


class Topics:
    def __init__(self, policy: MetadataPolicy, random: Random) -> None:
        self._policy = policy
        self._random = random

    # Create

    def create(self, image: MetadataImage, request: create_topics.CreateTopicsRequest) -> Outcome:
        counts = Counter(topic.name for topic in request.topics)
        state = _Request(image)
        records: list[Message] = []
        results: dict[str, create_topics.CreatableTopicResult] = {}
        for topic in request.topics:
            result = results[topic.name] = create_topics.CreatableTopicResult(name=topic.name, error_message=None)
            try:
                if counts[topic.name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += self._create(state, topic, result)
            except ApiError as problem:
                result.error_code, result.error_message = problem.code, problem.message
        if request.validate_only:
            records = []
            for result in results.values():
                result.topic_id = ZERO_UUID
        return records, create_topics.CreateTopicsResponse(topics=list(results.values()))

    def _create(
        self, state: _Request, topic: create_topics.CreatableTopic, result: create_topics.CreatableTopicResult
    ) -> list[Message]:
        state.take_name(topic.name)
        given = configs.check_topic_configs({}, {config.name: config.value for config in topic.configs})
        assignments = self._assignments(state, topic)
        topic_id = state.new_id(self._random)
        records: list[Message] = [metadata_topics.TopicRecord(name=topic.name, topic_id=topic_id)]
        records += configs.records_of((TOPIC_RESOURCE, topic.name), given)
        records += [
            placement.partition_record(state.image, topic_id, number, replicas)
            for number, replicas in enumerate(assignments)
        ]
        state.took(topic.name, topic_id, len(assignments))
        result.topic_id = topic_id
        result.num_partitions = len(assignments)
        result.replication_factor = len(assignments[0])
        result.configs = self._created_configs(state.image, given)
        return records

    def _assignments(self, state: _Request, topic: create_topics.CreatableTopic) -> list[list[int]]:
        if topic.assignments:
            return _manual_assignments(state, topic)
        count = self._policy.default_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = self._policy.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        state.check_partition_count(count)
        return placement.place(state.image, count, factor, 0, self._random)

    def _created_configs(
        self, image: MetadataImage, given: Mapping[str, str]
    ) -> list[create_topics.CreatableTopicConfigs]:
        """Every setting in force for the new topic, as CreateTopics answers it from version 5 (KIP-525)."""
        listed = []
        for key, (_, entry) in described(TopicSettings).items():
            if key in given:
                value: str | None = given[key]
                source = configs.ConfigSource.TOPIC
            else:
                origin = configs.origins(entry, self._policy.node_id, image, "", self._policy.static_settings)[0]
                value, source = origin.text, origin.source
            listed.append(create_topics.CreatableTopicConfigs(name=key, value=value, config_source=source))
        return listed

    # Delete

    def delete(self, image: MetadataImage, request: delete_topics.DeleteTopicsRequest) -> Outcome:
        wanted = [(state.name, state.topic_id) for state in request.topics]
        wanted += [(name, ZERO_UUID) for name in request.topic_names]
        counts = Counter(wanted)
        records: dict[bytes, Message] = {}
        results = []
        for name, topic_id in counts:
            result = delete_topics.DeletableTopicResult(name=name, topic_id=topic_id)
            try:
                if counts[name, topic_id] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
                topic = self._find(image, name, topic_id)
                if topic.topic_id in records:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                    )
                result.name, result.topic_id = topic.name, topic.topic_id
                records[topic.topic_id] = metadata_topics.RemoveTopicRecord(topic_id=topic.topic_id)
            except ApiError as problem:
                result.error_code, result.error_message = problem.code, problem.message
            results.append(result)
        return list(records.values()), delete_topics.DeleteTopicsResponse(responses=results)

    def _find(self, image: MetadataImage, name: str | None, topic_id: bytes) -> TopicImage:
        if not self._policy.delete_topic_enabled:
            raise ApiError(
                ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable is false."
            )
        if name is not None and topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is None and topic_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        topic = image.topics.get(name) if name is not None else image.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name is not None else ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    # Add partitions

    def add_partitions(self, image: MetadataImage, request: create_partitions.CreatePartitionsRequest) -> Outcome:
        counts = Counter(topic.name for topic in request.topics)
        state = _Request(image)
        records: list[Message] = []
        results: dict[str, create_partitions.CreatePartitionsTopicResult] = {}
        for wanted in request.topics:
            result = results[wanted.name] = create_partitions.CreatePartitionsTopicResult(name=wanted.name)
            try:
                if counts[wanted.name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += self._add(state, wanted)
            except ApiError as problem:
                result.error_code, result.error_message = problem.code, problem.message
        if request.validate_only:
            records = []
        return records, create_partitions.CreatePartitionsResponse(results=list(results.values()))

    def _add(self, state: _Request, wanted: create_partitions.CreatePartitionsTopic) -> list[Message]:
        topic = state.image.topics.get(wanted.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = len(topic.partitions)
        if wanted.count == current:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if wanted.count < current:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {wanted.name} currently has {current} partition(s); {wanted.count} would not be an "
                "increase.",
            )
        added = wanted.count - current
        state.check_partition_count(added)
        width = len(set(topic.partitions[0].replicas) - set(topic.partitions[0].removing_replicas))
        if wanted.assignments is None:
            placed = placement.place(state.image, added, width, current, self._random)
        else:
            placed = _added_assignments(state.image, wanted, added, width)
        records = [
            placement.partition_record(state.image, topic.topic_id, current + n, replicas)
            for n, replicas in enumerate(placed)
        ]
        state.partitions += added
        return records


def _manual_assignments(state: _Request, topic: create_topics.CreatableTopic) -> list[list[int]]:
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
    state.check_partition_count(len(by_number))
    assignments = [by_number[number] for number in range(len(by_number))]
    for replicas in assignments:
        placement.check_assignment(state.image, replicas, len(assignments[0]))
    return assignments


def _added_assignments(
    image: MetadataImage, wanted: create_partitions.CreatePartitionsTopic, added: int, width: int
) -> list[list[int]]:
    placed = [list(assignment.broker_ids) for assignment in wanted.assignments or ()]
    if len(placed) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(placed)} assignment(s) were specified.",
        )
    for replicas in placed:
        placement.check_assignment(image, replicas, width)
    return placed
