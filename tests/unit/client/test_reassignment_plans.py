"""Plans for moves of replicas and leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.reassignment import files
from barnabas.client.reassignment.balance import balance
from barnabas.client.reassignment.layout import Assignment, PlanBroker, PlanError, changes, moved_bytes
from barnabas.client.reassignment.plans import drain, generate
from barnabas.model.ids import TopicPartition

GIGABYTE = 1 << 30


def partitions(count: int, replicas: Sequence[int], topic: str = "t") -> Assignment:
    return {TopicPartition(topic, number): tuple(replicas) for number in range(count)}


def brokers(*ids: int, racks: str = "") -> list[PlanBroker]:
    """Of no rack, or each of the rack with its letter."""
    return [PlanBroker(node_id, racks[at] if racks else None) for at, node_id in enumerate(ids)]


def counts(assignment: Mapping[TopicPartition, Sequence[int]]) -> tuple[Counter[int], Counter[int]]:
    """(replicas, leaders) of each broker."""
    replicas = Counter(node_id for each in assignment.values() for node_id in each)
    return replicas, Counter(each[0] for each in assignment.values())


def test_a_topic_grows_from_one_replica_to_three() -> None:
    plan = generate(brokers(1, 2, 3), partitions(6, [1]), replication_factor=3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in plan.values())
    assert counts(plan)[1] == {1: 2, 2: 2, 3: 2}


def test_new_brokers_get_their_share_and_the_rest_stays() -> None:
    before = partitions(6, [1, 2])
    plan = generate(brokers(1, 2, 3), before)
    replicas, leaders = counts(plan)
    assert set(replicas.values()) == {4}
    assert set(leaders.values()) == {2}
    copied = moved_bytes(before, changes(before, plan), dict.fromkeys(before, 1))
    assert copied == 4, "a third broker's share, and nothing else is copied"


def test_what_is_spread_already_stays() -> None:
    before = generate(brokers(1, 2, 3), partitions(9, [1, 2]))
    assert changes(before, generate(brokers(1, 2, 3), before)) == {}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(PlanError, match="t-0 cannot have 3 replicas: there are 2 brokers"):
        generate(brokers(1, 2), partitions(1, [1]), replication_factor=3)


def test_replicas_go_to_different_racks() -> None:
    machines = brokers(1, 2, 3, 4, 5, 6, racks="aabbcc")
    plan = generate(machines, partitions(12, [1, 2]), replication_factor=3)
    rack = {broker.node_id: broker.rack for broker in machines}
    assert all({rack[node_id] for node_id in replicas} == {"a", "b", "c"} for replicas in plan.values())
    assert set(counts(plan)[0].values()) == {6}


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=7),
    current=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True), max_size=20),
    width=st.integers(1, 4),
)
def test_a_generated_plan_is_sound(racks: list[str], current: list[list[int]], width: int) -> None:
    nodes = brokers(*range(1, len(racks) + 1), racks="".join(racks))
    before = {TopicPartition("t", number): tuple(replicas) for number, replicas in enumerate(current)}
    width = min(width, len(nodes))
    plan = generate(nodes, before, replication_factor=width)
    assert plan.keys() == before.keys()
    of = {broker.node_id: broker.rack for broker in nodes}
    most = min(width, len(set(racks)))
    for replicas in plan.values():
        assert len(set(replicas)) == len(replicas) == width
        assert set(replicas) <= of.keys()
        assert len({of[node_id] for node_id in replicas}) >= min(most, 2 if width > 1 else 1)


def test_a_broker_is_drained() -> None:
    before = {**partitions(4, [1, 2, 3]), **partitions(4, [2, 3, 4], "u")}
    plan = drain(1, brokers(1, 2, 3, 4), before)
    assert plan.keys() == partitions(4, []).keys(), "only what it holds"
    assert all(set(replicas) == {2, 3, 4} for replicas in plan.values())
    assert all(replicas[0] != 4 for replicas in plan.values()), "a leader has the records already"
    assert counts({**before, **plan})[1] == {2: 4, 3: 4}


def test_a_broker_that_cannot_be_replaced_is_not_drained() -> None:
    with pytest.raises(PlanError, match="t-0 has 3 replicas, and without broker 2 there are 2 brokers that serve"):
        drain(2, brokers(1, 2, 3), partitions(1, [1, 2, 3]))


def test_draining_keeps_racks_apart() -> None:
    nodes = brokers(1, 2, 3, 4, 5, racks="aabbb")
    plan = drain(1, nodes, partitions(3, [1, 3]))
    assert all(replicas[0] == 3 and set(replicas) == {2, 3} for replicas in plan.values())


def test_a_balanced_cluster_is_left_alone() -> None:
    before = generate(brokers(1, 2, 3), partitions(9, [1, 2, 3]))
    assert balance(brokers(1, 2, 3), before, {}, max_moves=100) == {}


def test_replicas_move_to_an_empty_broker() -> None:
    before = partitions(8, [1, 2])
    plan = balance(brokers(1, 2, 3, 4), before, {}, max_moves=100)
    replicas, leaders = counts({**before, **plan})
    assert set(replicas.values()) == {4}
    assert set(leaders.values()) == {2}


def test_bytes_count_as_well_as_numbers() -> None:
    before = {TopicPartition("t", number): (1 + number % 2,) for number in range(8)}
    sizes = {partition: 10 * GIGABYTE if replicas == (1,) else GIGABYTE for partition, replicas in before.items()}
    after = {**before, **balance(brokers(1, 2), before, sizes, max_moves=100)}
    held = {node: sum(sizes[p] for p, replicas in after.items() if node in replicas) for node in (1, 2)}
    assert max(held.values()) == 22 * GIGABYTE, "was 40 and 4"


def test_small_differences_in_bytes_move_nothing() -> None:
    before = {TopicPartition("t", number): (1 + number % 2,) for number in range(4)}
    sizes = {partition: 100_000 if replicas == (1,) else 10 for partition, replicas in before.items()}
    assert balance(brokers(1, 2), before, sizes, max_moves=100) == {}


def test_moves_are_bounded() -> None:
    before = partitions(30, [1])
    plan = balance(brokers(1, 2), before, {}, max_moves=3)
    assert len(plan) == 3


def test_leaders_move_along_a_chain() -> None:
    before = {TopicPartition("t", n): (1, 2) for n in range(4)} | {TopicPartition("u", n): (2, 3) for n in range(2)}
    plan = balance(brokers(1, 2, 3), before, {}, max_moves=0)
    assert counts({**before, **plan})[1] == {1: 2, 2: 2, 3: 2}


def test_balance_mends_racks() -> None:
    nodes = brokers(1, 2, 3, 4, racks="aabb")
    before = partitions(2, [1, 2])
    after = {**before, **balance(nodes, before, {}, max_moves=100)}
    rack = {broker.node_id: broker.rack for broker in nodes}
    assert all({rack[node_id] for node_id in replicas} == {"a", "b"} for replicas in after.values())


def test_files_are_those_of_kafkas_tools() -> None:
    text = b'{"version":1,"partitions":[{"topic":"foo","partition":1,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    moves = files.read_reassignment(text, "plan.json")
    assert moves == {TopicPartition("foo", 1): (1, 2)}
    assert files.read_reassignment(files.reassignment_text(moves).encode(), "again") == moves
    assert files.read_topics(b'{"topics": [{"topic": "foo"}, {"topic": "foo"}], "version": 1}', "topics.json") == [
        "foo"
    ]
    assert files.read_partitions(b'{"partitions": [{"topic": "foo", "partition": 3}]}', "p") == [
        TopicPartition("foo", 3)
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"nonsense", "plan.json cannot be read"),
        (b'{"version":2,"partitions":[{"topic":"a","partition":0,"replicas":[1]}]}', "version that is not 1"),
        (b'{"version":1,"partitions":[]}', "names no partitions"),
        (b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,1]}]}', "each broker once"),
        (b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["/x"]}]}', "data folder"),
    ],
)
def test_bad_files_are_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(files.FileError, match=reason):
        files.read_reassignment(text, "plan.json")
