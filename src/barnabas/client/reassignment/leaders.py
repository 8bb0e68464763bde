"""Spreads preferred leaders evenly by reordering replicas, which copies nothing.

A leader moves along a chain of brokers, from one with too many to one with too few, where no single partition joins the
two: the first gives a partition to a second, which gives another one to a third. The shortest chain is taken.
"""

from __future__ import annotations

from collections import deque

from barnabas.client.reassignment.layout import Layout
from barnabas.model.ids import TopicPartition


def balance_leaders(layout: Layout) -> None:
    """Until no broker leads two more than another that it could give one to, directly or along a chain."""
    while True:
        chain = _best_chain(layout)
        if not chain:
            return
        for partition, leader in chain:
            replicas = layout.assignment[partition]
            layout.assign(partition, [leader, *(node_id for node_id in replicas if node_id != leader)])


def _best_chain(layout: Layout) -> list[tuple[TopicPartition, int]]:
    """(partition, its new leader) of each step; empty where nothing gets better."""
    gives = _possible_gifts(layout)
    for node_id in sorted(layout.racks, key=lambda each: (-layout.leaders[each], each)):
        chain = _shortest_chain(layout, gives, node_id)
        if chain:
            return chain
    return []


def _possible_gifts(layout: Layout) -> dict[int, dict[int, TopicPartition]]:
    """For each broker, to whom it could give leadership, and of what."""
    gives: dict[int, dict[int, TopicPartition]] = {}
    for partition, replicas in layout.assignment.items():
        if replicas:
            for other in replicas[1:]:
                if other in layout.racks:
                    gives.setdefault(replicas[0], {}).setdefault(other, partition)
    return gives


def _shortest_chain(
    layout: Layout, gives: dict[int, dict[int, TopicPartition]], start: int
) -> list[tuple[TopicPartition, int]]:
    came_from: dict[int, tuple[int, TopicPartition] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        node_id = waiting.popleft()
        if layout.leaders[node_id] <= layout.leaders[start] - 2:
            return _steps(came_from, node_id)
        for other, partition in sorted(gives.get(node_id, {}).items()):
            if other not in came_from:
                came_from[other] = node_id, partition
                waiting.append(other)
    return []


def _steps(came_from: dict[int, tuple[int, TopicPartition] | None], end: int) -> list[tuple[TopicPartition, int]]:
    steps = []
    step = came_from[end]
    while step is not None:
        giver, partition = step
        steps.append((partition, end))
        end, step = giver, came_from[giver]
    return steps[::-1]
