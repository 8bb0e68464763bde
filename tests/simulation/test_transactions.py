"""Histories of transactions that are written down, each with clients of both transaction versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import transaction_schedules as schedules
from tests.simulation.transaction_script import FIRST, SECOND

HISTORIES: list[Callable[..., None]] = [
    schedules.coordinator_dies_before_markers,
    schedules.coordinator_dies_before_complete,
    schedules.coordinator_dies_within_end,
    schedules.unreplicated_outcome,
    schedules.marker_leader_moves,
    schedules.leader_moves_in_transaction,
    schedules.timed_out_producer,
    schedules.delayed_produce,
    schedules.zombie_producer,
    schedules.zombie_offset_commit,
    schedules.crash_after_aborts,
    schedules.power_cut_after_aborts,
    schedules.aborted_offsets,
    schedules.prompt_markers,
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dialect", [FIRST, SECOND], ids=["version-1", "version-2"])
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_transactions_keep_their_promises_in(history: Callable[..., None], dialect: object) -> None:
    for seed in (1, 2, 3):
        history(seed, dialect)
