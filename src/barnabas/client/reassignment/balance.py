"""Evens out the load of a cluster: replicas by number and bytes, leaders by number, replicas over racks.

1. replicas that share a rack although another could hold them move there
2. replicas move from the most loaded broker to less loaded ones, the best move first, while that helps
3. leaders are spread by reordering replicas
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from barnabas.client.reassignment.layout import Assignment, Layout, PlanBroker, Replicas, Shares, changes
from barnabas.client.reassignment.leaders import balance_leaders
from barnabas.model.ids import TopicPartition

TOLERANCE = 0.1
"""Shares this near to each other are even enough."""
NO_GAIN = 1e-9


def balance(
    brokers: Iterable[PlanBroker],
    current: Replicas,
    sizes: Mapping[TopicPartition, int],
    *,
    max_moves: int,
    tolerance: float = TOLERANCE,
) -> Assignment:
    """The partitions that change; ``max_moves`` bounds the replicas that are copied, not the leaders."""
    layout = Layout(brokers, current, sizes)
    left = max_moves - _spread_over_racks(layout, max_moves)
    even_out(layout, max_moves=left, tolerance=tolerance)
    balance_leaders(layout)
    return changes(current, layout.assignment)


def _spread_over_racks(layout: Layout, max_moves: int) -> int:
    """Returns how many replicas it moved."""
    moved = 0
    for partition, replicas in list(layout.assignment.items()):
        limit = layout.rack_limit(len(replicas))
        for node_id in reversed(replicas):
            present = layout.assignment[partition]
            if moved >= max_moves or layout.in_rack(present, node_id) < limit:
                continue
            other = layout.candidate([each for each in present if each != node_id])
            if other is not None and layout.in_rack(_without(present, node_id), other) < limit and other != node_id:
                _move(layout, partition, node_id, other)
                moved += 1
    return moved


def even_out(layout: Layout, *, max_moves: int, tolerance: float) -> None:
    """Moves, and swaps which count as two moves, while they help."""
    left = max_moves
    while left > 0:
        step = _best_step(layout, tolerance)
        if step is None or len(step) > left:
            return
        for partition, giver, taker in step:
            _move(layout, partition, giver, taker)
        left -= len(step)


Step: TypeAlias = list[tuple[TopicPartition, int, int]]
"""(partition, giver, taker) of each replica that moves."""


def _best_step(layout: Layout, tolerance: float) -> Step | None:
    """The move or swap that helps most, between the two brokers that are furthest from each other and have one."""
    by_cost = sorted(layout.racks, key=lambda node_id: (layout.cost(node_id), node_id))
    for giver in reversed(by_cost):
        for taker in by_cost:
            ahead = _ahead(layout, giver, taker)
            if max(ahead) > tolerance:
                step = _best_move(layout, giver, taker, ahead) or _best_swap(layout, giver, taker, ahead)
                if step is not None:
                    return step
    return None


def _ahead(layout: Layout, giver: int, taker: int) -> Shares:
    ours, theirs = layout.shares(giver), layout.shares(taker)
    return ours[0] - theirs[0], ours[1] - theirs[1]


def _gain(ahead: Shares, weight: Shares) -> float:
    """By how much the cost of both brokers falls when the weight goes from the one that is ahead to the other."""
    return sum(2 * part * (lead - part) for lead, part in zip(ahead, weight, strict=True))


def _best_move(layout: Layout, giver: int, taker: int, ahead: Shares) -> Step | None:
    best, best_gain = None, NO_GAIN
    for partition in _movable(layout, giver, taker):
        gain = _gain(ahead, layout.weight(partition))
        if gain > best_gain:
            best, best_gain = partition, gain
    return None if best is None else [(best, giver, taker)]


def _best_swap(layout: Layout, giver: int, taker: int, ahead: Shares) -> Step | None:
    """A larger partition for a smaller one, where any move alone would make the numbers uneven."""
    theirs = sorted(_movable(layout, taker, giver), key=layout.size)
    sizes = [layout.weight(partition)[1] for partition in theirs]
    best: Step | None = None
    best_gain = NO_GAIN
    for ours in _movable(layout, giver, taker):
        weight = layout.weight(ours)[1]
        at = bisect(sizes, weight - ahead[1] / 2)
        for other in theirs[max(0, at - 1) : at + 1]:
            gain = _gain(ahead, (0.0, weight - layout.weight(other)[1]))
            if gain > best_gain:
                best, best_gain = [(ours, giver, taker), (other, taker, giver)], gain
    return best


def _movable(layout: Layout, giver: int, taker: int) -> Iterator[TopicPartition]:
    for partition, replicas in layout.assignment.items():
        if giver in replicas and taker not in replicas:
            others = _without(replicas, giver)
            if layout.in_rack(others, taker) < layout.rack_limit(len(replicas)):
                yield partition


def _move(layout: Layout, partition: TopicPartition, giver: int, taker: int) -> None:
    layout.assign(partition, [taker if each == giver else each for each in layout.assignment[partition]])


def _without(replicas: Sequence[int], node_id: int) -> list[int]:
    return [each for each in replicas if each != node_id]
