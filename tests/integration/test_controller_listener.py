"""The controller listens where ``listeners`` names it, and serves its own APIs there (KIP-919)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.model.ids import METADATA_TOPIC
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api import create_topics, describe_quorum, metadata
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
    assert {0, 1, 3} <= of_broker - of_controller, "Produce, Fetch and Metadata"


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
