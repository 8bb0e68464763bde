"""When a broker is ready: each reason by itself, and a real broker."""

from __future__ import annotations

import json

from barnabas.cli.broker_ready import reasons
from barnabas.cli.partition_problems import state_of
from barnabas.client.wire import Address, PartitionInfo
from barnabas.client.wire.cluster import ClusterBroker, QuorumInfo, QuorumReplica, Reassignment
from barnabas.model.ids import ZERO_UUID, TopicPartition
from barnabas.net.local_ports import free_ports
from barnabas.testing import EmbeddedBroker
from tests.unit.cli.command_line import run

PLACE = TopicPartition("orders", 0)


def brokers(*, fenced: tuple[int, ...] = ()) -> list[ClusterBroker]:
    return [ClusterBroker(node, Address("127.0.0.1", 9090 + node), None, node in fenced) for node in (1, 2, 3)]


def quorum(*ages_ms: int) -> QuorumInfo:
    voters = [QuorumReplica(node, ZERO_UUID, 10, 0, 100_000 - age) for node, age in enumerate(ages_ms, start=1)]
    return QuorumInfo(1, 1, 10, voters, [], {})


def partition(*in_sync: int, leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionInfo:
    return PartitionInfo(0, leader, 1, replicas, in_sync, ())


def test_ready_where_all_is_in_sync() -> None:
    assert reasons(2, brokers(), quorum(0, 300, 300), {PLACE: partition(3, 1, 2)}, {}) == []


def test_not_ready_while_fenced_or_unknown() -> None:
    assert reasons(2, brokers(fenced=(2,)), quorum(0, 300, 300), {}, {}) == ["it is fenced"]
    assert reasons(9, brokers(), quorum(0, 300, 300), {}, {}) == ["it is not registered"]


def test_not_ready_while_another_replica_of_its_partitions_is_missing() -> None:
    (reason,) = reasons(2, brokers(), quorum(0, 300, 300), {PLACE: partition(1, 2)}, {})
    assert reason == "1 partition of it without a full in-sync set (orders-0)"


def test_partitions_of_others_do_not_matter() -> None:
    elsewhere = partition(1, replicas=(1, 3))
    assert reasons(2, brokers(), quorum(0, 300, 300), {PLACE: elsewhere}, {}) == []


def test_replicas_that_a_move_adds_are_not_expected_in_sync() -> None:
    move = Reassignment((1, 2, 3), (3,), ())
    assert reasons(2, brokers(), quorum(0, 300, 300), {PLACE: partition(1, 2)}, {PLACE: move}) == []
    assert reasons(2, brokers(), quorum(0, 300, 300), {PLACE: partition(1)}, {PLACE: move}) != []


def test_a_voter_is_not_ready_while_another_voter_is_behind() -> None:
    assert reasons(2, brokers(), quorum(0, 300, 60_000), {}, {}) == ["the metadata quorum waits for 1 voter (3)"]
    only_a_broker = QuorumInfo(1, 1, 10, [each for each in quorum(0, 0, 60_000).voters if each.node_id != 2], [], {})
    assert reasons(2, brokers(), only_a_broker, {}, {}) == []


def test_a_broker_of_its_own(shared_broker: EmbeddedBroker) -> None:
    servers = shared_broker.bootstrap_servers
    assert json.loads(run("broker", "ready", "1", "-b", servers, "--json").stdout)["is_ready"] is True
    assert "Broker 7 is not ready: it is not registered." in run("broker", "ready", "7", "-b", servers, code=1).stdout


def test_no_broker_is_not_ready_within_the_timeout() -> None:
    (port,) = free_ports("127.0.0.1", 1)
    done = run("broker", "ready", "1", "-b", f"127.0.0.1:{port}", "--timeout", "2", code=1)
    assert "connection refused" in done.stdout


def test_states_of_partitions() -> None:
    assert state_of(partition(1, 2, 3), 2) is None
    assert state_of(partition(1, 2), 2) == "under-replicated"
    assert state_of(partition(1), 2) == "under min ISR"
    assert state_of(partition(1, replicas=(1,)), 2) is None
    assert state_of(partition(1, leader=-1), 1) == "offline"


def test_problems_of_a_broker_without_any(shared_broker: EmbeddedBroker) -> None:
    found = json.loads(run("partition", "problems", "-b", shared_broker.bootstrap_servers, "--json").stdout)
    assert (found["quorum"], found["partitions"]) == (None, [])
