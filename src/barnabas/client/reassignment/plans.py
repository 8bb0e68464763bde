"""Plans for chosen partitions: spread them over brokers, change their number of replicas, take them off a broker.

All move as little as they can: a replica stays where it is unless its broker is not wanted, holds more than its part
of the chosen partitions, or shares a rack that could be spared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.reassignment.balance import even_out
from barnabas.client.reassignment.layout import Assignment, Layout, PlanBroker, PlanError, Replicas, changes
from barnabas.client.reassignment.leaders import balance_leaders
from barnabas.model.ids import TopicPartition


def generate(
    brokers: Sequence[PlanBroker],
    current: Replicas,
    *,
    replication_factor: int | None = None,
) -> Assignment:
    """The partitions spread evenly by number over the brokers, each with as many replicas as it has, or as given.

    Raises PlanError.
    """
    layout = Layout(brokers, {}, {})
    widths = {partition: replication_factor or len(replicas) for partition, replicas in current.items()}
    for partition, width in widths.items():
        if width > len(layout.racks):
            raise PlanError(f"{partition} cannot have {width} replicas: {_there_are(len(layout.racks))} to place it")
    for partition, replicas in current.items():
        layout.assign(partition, _kept(layout, replicas, widths[partition]))
    for partition, width in widths.items():
        _fill(layout, partition, width)
    even_out(layout, max_moves=sum(widths.values()), tolerance=0)
    balance_leaders(layout)
    return layout.assignment


def _kept(layout: Layout, replicas: Sequence[int], width: int) -> list[int]:
    kept: list[int] = []
    for node_id in replicas:
        fits = layout.in_rack(kept, node_id) < layout.rack_limit(width)
        if node_id in layout.racks and len(kept) < width and fits:
            kept.append(node_id)
    return kept


def _fill(layout: Layout, partition: TopicPartition, width: int) -> None:
    replicas = list(layout.assignment[partition])
    while len(replicas) < width:
        node_id = layout.candidate(replicas)
        assert node_id is not None
        replicas.append(node_id)
    layout.assign(partition, replicas)


def drain(
    leaving: int, brokers: Iterable[PlanBroker], current: Replicas, *, sizes: Mapping[TopicPartition, int] | None = None
) -> Assignment:
    """Moves all replicas off a broker; only the partitions that it holds. Raises PlanError."""
    others = [broker for broker in brokers if broker.node_id != leaving]
    layout = Layout(others, current, sizes or {})
    held = sorted((p for p, replicas in current.items() if leaving in replicas), key=layout.size, reverse=True)
    for partition in held:
        replicas = layout.assignment[partition]
        kept = [node_id for node_id in replicas if node_id != leaving]
        chosen = layout.candidate(kept)
        if chosen is None:
            raise PlanError(
                f"{partition} has {_replicas(len(replicas))}, and without broker {leaving} "
                f"{_there_are(len(others))} that serve"
            )
        layout.assign(partition, _replaced(layout, replicas, kept, leaving, chosen))
    return changes(current, layout.assignment)


def _replaced(layout: Layout, replicas: Sequence[int], kept: list[int], leaving: int, chosen: int) -> list[int]:
    """In the place of the broker that leaves; a leader is taken from those that have the records already."""
    if replicas[0] != leaving or not kept:
        return [chosen if node_id == leaving else node_id for node_id in replicas]
    leader = min(kept, key=lambda node_id: (layout.leaders[node_id], node_id))
    return [leader, *(node_id for node_id in kept if node_id != leader), chosen]


def _there_are(brokers: int) -> str:
    return "there is 1 broker" if brokers == 1 else f"there are {brokers} brokers"


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"
