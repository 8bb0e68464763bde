"""Where new partitions go: leaders and replicas spread evenly, over racks where there are some."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.core.metadata.image import BrokerImage, MetadataImage
from barnabas.core.metadata.placement import place


def brokers(racks: list[str | None], fenced: frozenset[int] = frozenset()) -> MetadataImage:
    return MetadataImage(
        brokers={
            n: BrokerImage(
                node_id=n,
                broker_epoch=0,
                incarnation_id=bytes(16),
                endpoints=(),
                features=(),
                rack=rack,
                fenced=n in fenced,
                in_controlled_shutdown=False,
                directories=(),
            )
            for n, rack in enumerate(racks)
        }
    )


@pytest.mark.parametrize("racks", [[None] * 7, ["a"] * 6, [*"aabbcc"], [*"abcdef"], [*"aaabbb"]])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_leaders_and_replicas_are_even(racks: list[str | None], factor: int) -> None:
    placed = place(brokers(racks), 60 * len(racks), factor, 0, random.Random(1))
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {60}
    loads = Counter(node for replicas in placed for node in replicas)
    assert max(loads.values()) - min(loads.values()) <= 0.1 * 60 * factor
    assert all(len(set(replicas)) == factor for replicas in placed)


@pytest.mark.parametrize("racks", [[*"aabbcc"], [*"aaaaabc"], [*"abcdef"]])
def test_replicas_are_on_different_racks(racks: list[str | None]) -> None:
    for replicas in place(brokers(racks), 50, 3, 0, random.Random(2)):
        assert len({racks[node] for node in replicas}) == 3


def test_a_machine_that_is_away_keeps_its_replica() -> None:
    """Two replicas on one machine would be lost together."""
    racks: list[str | None] = [*"aabbcc"]
    placed = place(brokers(racks, frozenset({4, 5})), 50, 3, 0, random.Random(2))
    assert all({racks[node] for node in replicas} == {"a", "b", "c"} for replicas in placed)
    assert all(replicas[0] < 4 for replicas in placed), "a broker that serves leads"
    assert Counter(replicas[2] for replicas in placed) == {4: 25, 5: 25}


def test_the_workers_of_one_machine_hold_all_replicas() -> None:
    placed = place(brokers(["a"] * 3, frozenset({2})), 10, 3, 0, random.Random(2))
    assert all(set(replicas) == {0, 1, 2} for replicas in placed)


def test_two_racks_and_three_replicas_use_both() -> None:
    for replicas in place(brokers([*"aaabbb"]), 50, 3, 0, random.Random(3)):
        assert {[*"aaabbb"][node] for node in replicas} == {"a", "b"}


def test_topics_of_one_partition_are_spread_too() -> None:
    chance = random.Random(4)
    image = brokers([*"aabbcc"])
    loads = Counter(node for _ in range(600) for node in place(image, 1, 3, 0, chance)[0])
    assert max(loads.values()) < 1.3 * min(loads.values())


def test_the_followers_of_a_leader_differ() -> None:
    """When a broker fails, its partitions are led by several others."""
    placed = place(brokers([None] * 5), 100, 2, 0, random.Random(5))
    assert {follower for leader, follower in placed if leader == 0} == {1, 2, 3, 4}
