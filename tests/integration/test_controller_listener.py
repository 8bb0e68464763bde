"""The controller listens where ``listeners`` names it, and serves its own APIs there (KIP-919)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import METADATA_TOPIC
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api import (
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    create_topics,
    describe_cluster,
    describe_configs,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    metadata,
    unregister_broker,
    update_features,
)
from tests.reliability.raw import Raw

LISTENERS = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"listeners": LISTENERS}) as running:
        yield running


@pytest.fixture
def controller_port(broker: EmbeddedBroker) -> int:
    assert broker._server is not None
    return next(each.port for each in broker._server.listeners if each.name == "CONTROLLER")


def test_it_advertises_what_a_controller_serves(broker: EmbeddedBroker, controller_port: int) -> None:
    with Raw(controller_port) as controller, Raw(broker.port) as client:
        of_controller = {api.api_key for api in controller.versions().api_keys}
        of_broker = {api.api_key for api in client.versions().api_keys}
    assert {62, 63, 70} <= of_controller - of_broker, "registrations and heartbeats"
    assert {0, 3, 11} <= of_broker - of_controller, "Produce, Metadata and JoinGroup"


def test_the_quorum_names_its_endpoint(broker: EmbeddedBroker, controller_port: int) -> None:
    wanted = describe_quorum.DescribeQuorumRequestTopicData(
        METADATA_TOPIC, [describe_quorum.DescribeQuorumRequestPartitionData(0)]
    )
    request = describe_quorum.DescribeQuorumRequest([wanted])
    with Raw(controller_port) as controller, Raw(broker.port) as client:
        for asked in (controller, client):
            found = asked.call(request, describe_quorum.DescribeQuorumResponse, 2)
            assert found.topics[0].partitions[0].leader_id == 1
            assert [(each.name, each.port) for each in found.nodes[0].listeners] == [("CONTROLLER", controller_port)]


def test_topics_are_created_at_the_controller_and_seen_at_the_broker(
    broker: EmbeddedBroker, controller_port: int
) -> None:
    topic = create_topics.CreatableTopic(name="made-there", num_partitions=2, replication_factor=1)
    with Raw(controller_port) as controller, Raw(broker.port) as client:
        made = controller.call(create_topics.CreateTopicsRequest(topics=[topic]), create_topics.CreateTopicsResponse, 7)
        assert made.topics[0].error_code == 0
        request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="made-there")])
        seen = client.call(request, metadata.MetadataResponse, 12)
        assert len(seen.topics[0].partitions) == 2


def test_both_serve_the_requests_of_administrators(broker: EmbeddedBroker, controller_port: int) -> None:
    """Brokers forward what the controller decides; clients may ask it directly too."""
    with Raw(controller_port) as controller, Raw(broker.port) as client:
        topic = create_topics.CreatableTopic(name="moved", num_partitions=1, replication_factor=1)
        client.call(create_topics.CreateTopicsRequest(topics=[topic]), create_topics.CreateTopicsResponse, 7)
        for asked in (controller, client):
            check_reassignment(asked)
            wanted = elect_leaders.ElectLeadersRequest(topic_partitions=[elect_leaders.TopicPartitions("moved", [0])])
            elected = asked.call(wanted, elect_leaders.ElectLeadersResponse, 2)
            code = elected.replica_election_results[0].partition_result[0].error_code
            assert code == ErrorCode.ELECTION_NOT_NEEDED
            unknown = asked.call(
                unregister_broker.UnregisterBrokerRequest(broker_id=7), unregister_broker.UnregisterBrokerResponse, 0
            )
            assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
            update = update_features.FeatureUpdateKey(feature="group.version", max_version_level=9)
            refused = asked.call(
                update_features.UpdateFeaturesRequest(feature_updates=[update]),
                update_features.UpdateFeaturesResponse,
                2,
            )
            assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION


def check_reassignment(asked: Raw) -> None:
    api = alter_partition_reassignments
    target = api.ReassignableTopic("moved", [api.ReassignablePartition(0, [1, 7])])
    answer = asked.call(
        api.AlterPartitionReassignmentsRequest(topics=[target]), api.AlterPartitionReassignmentsResponse, 1
    )
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    listed = asked.call(
        list_partition_reassignments.ListPartitionReassignmentsRequest(),
        list_partition_reassignments.ListPartitionReassignmentsResponse,
        0,
    )
    assert (listed.error_code, listed.topics) == (0, [])


def test_the_controller_describes_itself(controller_port: int) -> None:
    with Raw(controller_port) as controller:
        request = describe_cluster.DescribeClusterRequest(endpoint_type=2)
        found = controller.call(request, describe_cluster.DescribeClusterResponse, 2)
        assert (found.endpoint_type, found.controller_id) == (2, 1)
        assert [(each.broker_id, each.port) for each in found.brokers] == [(1, controller_port)]
        mismatched = controller.call(
            describe_cluster.DescribeClusterRequest(endpoint_type=1), describe_cluster.DescribeClusterResponse, 2
        )
        assert mismatched.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        resource = describe_configs.DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=["broker.session.timeout.ms"]
        )
        described = controller.call(
            describe_configs.DescribeConfigsRequest(resources=[resource]), describe_configs.DescribeConfigsResponse, 4
        )
        assert [config.value for config in described.results[0].configs] == ["2500"]


def test_a_leader_that_is_not_registered_is_refused(controller_port: int) -> None:
    with Raw(controller_port) as controller:
        request = alter_partition.AlterPartitionRequest(broker_id=1, broker_epoch=99)
        answer = controller.call(request, alter_partition.AlterPartitionResponse, 3)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assigned = controller.call(
            assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=99),
            assign_replicas_to_dirs.AssignReplicasToDirsResponse,
            0,
        )
        assert assigned.error_code == ErrorCode.STALE_BROKER_EPOCH
