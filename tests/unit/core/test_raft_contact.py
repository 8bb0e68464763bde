"""What a raft machine knows of when others were there: a follower of its leader, a leader of its majority."""

from __future__ import annotations

from barnabas.core.raft.machine import QuorumSettings
from tests.scenarios.raft_nodes import Cluster, Node

START_MS = 3000
FETCH_WAIT_MS = QuorumSettings().fetch_max_wait_ms


def quorum() -> Cluster:
    """Three voters, of which node 1 leads."""
    cluster = Cluster([1, 2, 3])
    cluster.nodes.update({number: Node(cluster, number) for number in (1, 2, 3)})
    for node in cluster.nodes.values():
        node.start()
    cluster.run(START_MS)
    assert cluster.nodes[1].machine.is_leading
    return cluster


def test_a_follower_remembers_when_its_last_leader_answered() -> None:
    cluster = quorum()
    assert cluster.nodes[1].machine.last_leader is None
    cluster.cut.add(1)
    cluster.run(4000)
    new = next(node.machine for number, node in cluster.nodes.items() if number > 1 and node.machine.is_leading)
    leader_id, heard_ms = new.last_leader or (0, 0)
    assert leader_id == 1
    assert START_MS - FETCH_WAIT_MS <= heard_ms <= START_MS


def test_a_leader_that_is_cut_off_knows_how_long_its_majority_has_been_silent() -> None:
    cluster = quorum()
    leader = cluster.nodes[1].machine
    before_ms = leader.majority_heard_ms or 0
    assert START_MS - FETCH_WAIT_MS <= before_ms <= START_MS
    assert cluster.nodes[2].machine.majority_heard_ms is None
    cluster.cut.add(1)
    cluster.run(1000)
    assert leader.majority_heard_ms == before_ms


def test_the_only_voter_waits_for_nobody() -> None:
    cluster = Cluster([1])
    cluster.nodes[1] = Node(cluster, 1)
    cluster.nodes[1].start()
    cluster.run(START_MS)
    assert cluster.nodes[1].machine.is_leading
    assert cluster.nodes[1].machine.majority_heard_ms is None
