"""Replay: applies records to an image and makes the next one.

While records are applied, what changes is held in plain mutable copies (one per topic, not per record), so that
replaying ten thousand partitions of a topic costs one copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec.structs import replace

from barnabas.core.metadata.image import (
    TOPIC_RESOURCE,
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.model.errors import InvariantBroken, invariant
from barnabas.model.ids import ZERO_UUID, Uuid
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_control, metadata_nodes, metadata_topics

NO_LEADER_CHANGE = -2


class MetadataDelta:
    """Records applied on top of ``base``."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.result = base
        """The image that ``image`` made last."""
        self.removed_topics: dict[bytes, TopicImage] = {}
        self.changed_topics: set[bytes] = set()
        """Ids of topics created or changed. Never iterated in a decision."""
        self.changed_brokers: set[int] = set()
        self.changed_configs: set[tuple[int, str]] = set()
        self._features = dict(base.features)
        self._brokers = dict(base.brokers)
        self._controllers = dict(base.controllers)
        self._configs = dict(base.configs)
        self._names: dict[bytes, str] = {}
        """Topics touched: id -> name."""
        self._partitions: dict[bytes, list[PartitionImage]] = {}
        self._next_producer_id = base.next_producer_id
        self._producer_ids_owner = base.producer_ids_owner
        self._kept = list(base.kept)

    def replay(self, record: Message) -> None:
        apply = self._APPLY.get(type(record))
        if apply is None:
            self._kept.append(record)
        else:
            apply(self, record)

    def image(self, *, next_offset: int, raft_epoch: int, timestamp_ms: int) -> MetadataImage:
        topics, topics_by_id = self.base.topics, self.base.topics_by_id
        if self._names or self.removed_topics:
            topics, topics_by_id = dict(topics), dict(topics_by_id)
            for topic_id, removed in self.removed_topics.items():
                del topics_by_id[topic_id]
                if topics[removed.name].topic_id == topic_id:
                    del topics[removed.name]
            for topic_id, name in self._names.items():
                topic = TopicImage(name=name, topic_id=Uuid(topic_id), partitions=tuple(self._partitions[topic_id]))
                topics[name] = topics_by_id[topic_id] = topic
        self.result = MetadataImage(
            next_offset=next_offset,
            raft_epoch=raft_epoch,
            timestamp_ms=timestamp_ms,
            features=self._features,
            brokers=self._brokers,
            controllers=self._controllers,
            topics=topics,
            topics_by_id=topics_by_id,
            configs=self._configs,
            next_producer_id=self._next_producer_id,
            producer_ids_owner=self._producer_ids_owner,
            kept=tuple(self._kept),
        )
        return self.result

    @property
    def touched_topics(self) -> tuple[bytes, ...]:
        """The ids of ``changed_topics`` in the order of their first record."""
        return tuple(self._names)

    # Topics and partitions

    def _touch(self, topic_id: bytes) -> list[PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = None if topic_id in self.removed_topics else self.base.topics_by_id.get(topic_id)
            if topic is None:
                raise InvariantBroken(f"a record changes the unknown topic {topic_id.hex()}")
            self._names[topic_id] = topic.name
            partitions = self._partitions[topic_id] = list(topic.partitions)
            self.changed_topics.add(topic_id)
        return partitions

    def _topic(self, record: metadata_topics.TopicRecord) -> None:
        invariant(
            record.topic_id not in self.base.topics_by_id and record.topic_id not in self._names,
            f"a record creates the topic {record.topic_id.hex()} again",
        )
        self._names[record.topic_id] = record.name
        self._partitions[record.topic_id] = []
        self.changed_topics.add(record.topic_id)

    def _remove_topic(self, record: metadata_topics.RemoveTopicRecord) -> None:
        topic_id = record.topic_id
        self._touch(topic_id)
        resource = (TOPIC_RESOURCE, self._names.pop(topic_id))
        del self._partitions[topic_id]
        self.changed_topics.discard(topic_id)
        if topic_id in self.base.topics_by_id:
            self.removed_topics[topic_id] = self.base.topics_by_id[topic_id]
        if self._configs.pop(resource, None) is not None:
            self.changed_configs.add(resource)

    def _partition(self, record: metadata_topics.PartitionRecord) -> None:
        partitions = self._touch(record.topic_id)
        invariant(
            record.partition_id <= len(partitions),
            f"partition {record.partition_id} of {record.topic_id.hex()} in order",
        )
        image = PartitionImage(
            replicas=tuple(record.replicas),
            in_sync_replicas=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_eligible=tuple(record.last_known_elr or ()),
        )
        if record.partition_id == len(partitions):
            partitions.append(image)
        else:
            partitions[record.partition_id] = image

    def _partition_change(self, record: metadata_topics.PartitionChangeRecord) -> None:
        partitions = self._touch(record.topic_id)
        invariant(
            0 <= record.partition_id < len(partitions),
            f"a record changes the unknown partition {record.partition_id} of {record.topic_id.hex()}",
        )
        before = partitions[record.partition_id]
        changes: dict[str, Any] = {"partition_epoch": before.partition_epoch + 1}
        for name, value in (
            ("in_sync_replicas", record.isr),
            ("replicas", record.replicas),
            ("removing_replicas", record.removing_replicas),
            ("adding_replicas", record.adding_replicas),
            ("eligible_leader_replicas", record.eligible_leader_replicas),
            ("last_known_eligible", record.last_known_elr),
            ("directories", record.directories),
        ):
            if value is not None:
                changes[name] = tuple(value)
        if record.replicas is not None and not record.directories:
            places = dict(zip(before.replicas, before.directories, strict=False))
            changes["directories"] = tuple(places.get(node, ZERO_UUID) for node in record.replicas)
        if record.leader != NO_LEADER_CHANGE:
            changes["leader"] = record.leader
            changes["leader_epoch"] = before.leader_epoch + 1
        if record.leader_recovery_state != -1:
            changes["leader_recovery_state"] = record.leader_recovery_state
        partitions[record.partition_id] = replace(before, **changes)

    def _clear_eligible(self, record: metadata_topics.ClearElrRecord) -> None:
        """Of one topic by its name, or of all; a change like any other, so partition epochs go up (KIP-966)."""
        named = self.base.topics.get(record.topic_name)
        for topic in self.base.topics.values() if not record.topic_name else [named] if named is not None else []:
            if topic.topic_id not in self.removed_topics:
                self._touch(topic.topic_id)
        for topic_id, name in self._names.items():
            if record.topic_name in ("", name):
                self._partitions[topic_id] = [_without_eligible(p) for p in self._partitions[topic_id]]

    # Brokers and controllers

    def _register_broker(self, record: metadata_nodes.RegisterBrokerRecord) -> None:
        self.changed_brokers.add(record.broker_id)
        self._brokers[record.broker_id] = BrokerImage(
            node_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def _unregister_broker(self, record: metadata_nodes.UnregisterBrokerRecord) -> None:
        invariant(record.broker_id in self._brokers, f"a record unregisters the unknown broker {record.broker_id}")
        self.changed_brokers.add(record.broker_id)
        del self._brokers[record.broker_id]

    def _change_broker(self, record: metadata_nodes.BrokerRegistrationChangeRecord) -> None:
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["directories"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_directories"] = tuple(record.cordoned_log_dirs)
        self._change(record.broker_id, record.broker_epoch, **changes)

    def _fence(self, record: metadata_nodes.FenceBrokerRecord) -> None:
        self._change(record.id, record.epoch, fenced=True)

    def _unfence(self, record: metadata_nodes.UnfenceBrokerRecord) -> None:
        self._change(record.id, record.epoch, fenced=False)

    def _change(self, broker_id: int, broker_epoch: int, **changes: Any) -> None:
        before = self._brokers.get(broker_id)
        if before is None or before.broker_epoch != broker_epoch:
            raise InvariantBroken(f"a record changes broker {broker_id} of epoch {broker_epoch}, which is {before}")
        self.changed_brokers.add(broker_id)
        self._brokers[broker_id] = replace(before, **changes)

    def _register_controller(self, record: metadata_nodes.RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = ControllerImage(
            node_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
        )

    # Settings, features, producer ids

    def _config(self, record: metadata_topics.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        self.changed_configs.add(resource)
        values = dict(self._configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self._configs[resource] = values
        else:
            self._configs.pop(resource, None)

    def _feature(self, record: metadata_control.FeatureLevelRecord) -> None:
        if record.feature_level:
            self._features[record.name] = record.feature_level
        else:
            self._features.pop(record.name, None)

    def _producer_ids(self, record: metadata_control.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id
        self._producer_ids_owner = (record.broker_id, record.broker_epoch)

    def _nothing(self, record: Message) -> None:
        """Marks of metadata transactions and of an idle log: no state."""

    _APPLY: ClassVar[dict[type[Message], Callable[[MetadataDelta, Any], None]]] = {
        metadata_topics.TopicRecord: _topic,
        metadata_topics.RemoveTopicRecord: _remove_topic,
        metadata_topics.PartitionRecord: _partition,
        metadata_topics.PartitionChangeRecord: _partition_change,
        metadata_topics.ClearElrRecord: _clear_eligible,
        metadata_nodes.RegisterBrokerRecord: _register_broker,
        metadata_nodes.UnregisterBrokerRecord: _unregister_broker,
        metadata_nodes.BrokerRegistrationChangeRecord: _change_broker,
        metadata_nodes.FenceBrokerRecord: _fence,
        metadata_nodes.UnfenceBrokerRecord: _unfence,
        metadata_nodes.RegisterControllerRecord: _register_controller,
        metadata_topics.ConfigRecord: _config,
        metadata_control.FeatureLevelRecord: _feature,
        metadata_control.ProducerIdsRecord: _producer_ids,
        metadata_control.NoOpRecord: _nothing,
        metadata_control.BeginTransactionRecord: _nothing,
        metadata_control.EndTransactionRecord: _nothing,
        metadata_control.AbortTransactionRecord: _nothing,
    }


def _without_eligible(partition: PartitionImage) -> PartitionImage:
    if not partition.eligible_leader_replicas and not partition.last_known_eligible:
        return partition
    return replace(
        partition,
        eligible_leader_replicas=(),
        last_known_eligible=(),
        partition_epoch=partition.partition_epoch + 1,
    )


def _endpoints(listed: list[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in listed)


def _features(listed: list[Any]) -> tuple[tuple[str, int, int], ...]:
    return tuple((f.name, f.min_supported_version, f.max_supported_version) for f in listed)
