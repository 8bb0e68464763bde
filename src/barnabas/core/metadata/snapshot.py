"""Converts an image to the records that make it: the content of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from barnabas.core.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage, PartitionImage
from barnabas.wire.schema import Message
from barnabas.wire.stored import metadata_control, metadata_nodes, metadata_topics


def records_of(image: MetadataImage) -> Iterator[Message]:
    for name in sorted(image.features, key=lambda feature: (feature != "metadata.version", feature)):
        yield metadata_control.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for controller in image.controllers.values():
        yield controller_record(controller)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for topic in image.topics.values():
        yield metadata_topics.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for number, partition in enumerate(topic.partitions):
            yield _partition(topic.topic_id, number, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for key, value in values.items():
            yield metadata_topics.ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=key, value=value
            )
    if image.next_producer_id:
        owner, owner_epoch = image.producer_ids_owner
        yield metadata_control.ProducerIdsRecord(
            broker_id=owner, broker_epoch=owner_epoch, next_producer_id=image.next_producer_id
        )
    yield from image.kept


def broker_record(broker: BrokerImage) -> Message:
    return metadata_nodes.RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[_endpoint(metadata_nodes.BrokerEndpoint, e) for e in broker.endpoints],
        features=[
            metadata_nodes.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned_directories is None else list(broker.cordoned_directories),
    )


def controller_record(controller: ControllerImage) -> Message:
    return metadata_nodes.RegisterControllerRecord(
        controller_id=controller.node_id,
        incarnation_id=controller.incarnation_id,
        end_points=[_endpoint(metadata_nodes.ControllerEndpoint, e) for e in controller.endpoints],
        features=[
            metadata_nodes.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in controller.features
        ],
    )


E = TypeVar("E", metadata_nodes.BrokerEndpoint, metadata_nodes.ControllerEndpoint)


def _endpoint(cls: type[E], endpoint: Endpoint) -> E:
    return cls(name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol)


def _partition(topic_id: bytes, number: int, partition: PartitionImage) -> Message:
    return metadata_topics.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.in_sync_replicas),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        leader_recovery_state=partition.leader_recovery_state,
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_eligible) or None,
    )
