"""What the brokers of a cluster answer to requests that stock clients send to the wrong one."""

from __future__ import annotations

from barnabas.client.wire import Client
from barnabas.model.errors import ErrorCode
from barnabas.testing import EmbeddedCluster
from barnabas.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.api.produce import ProduceResponse
from tests.reliability.raw import batch, produce_request


def test_a_follower_names_the_leader_to_a_producer_with_acks_all() -> None:
    """NOT_ENOUGH_REPLICAS, which a client takes for the leader's word, would keep it there for good."""
    with EmbeddedCluster(brokers=3) as cluster, Client(cluster.bootstrap_servers) as client:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=3)
        client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        leader = cluster.leader_of("orders")
        for follower in set(cluster.brokers) - {leader}:
            connection = client.node(follower)
            reply = connection.request(produce_request("orders", batch()), ProduceResponse, version=12)
            (answer,) = reply.responses[0].partition_responses
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader.leader_id == leader
            assert [endpoint.node_id for endpoint in reply.node_endpoints] == [leader]
