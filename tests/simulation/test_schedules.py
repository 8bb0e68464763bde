"""Histories that are written down, and proof that those for planted bugs find them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import schedules

HISTORIES: list[Callable[[int], None]] = [
    schedules.figure_8,
    schedules.double_vote,
    schedules.zombie_controller,
    schedules.unsynced_voters,
    schedules.pending_removal,
    schedules.voter_added_while_leader_dies,
    schedules.registration_after_voter_change,
    schedules.interrupted_snapshot,
    schedules.deletion_over_failover,
    schedules.full_disk_of_the_controller,
    schedules.divergent_tails,
    schedules.zombie_leader,
    schedules.lagging_follower,
    schedules.unanswered_proposal,
    schedules.no_unclean_election,
    schedules.too_few_in_sync,
    schedules.unflushed_followers,
    schedules.delayed_alter_partition,
    schedules.restarted_replica,
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_the_cluster_keeps_its_promises_in(history: Callable[[int], None]) -> None:
    for seed in (1, 2, 3):
        history(seed)
