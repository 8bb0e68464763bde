"""Seeds of the simulated quorum, and proof that it finds planted bugs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.model.errors import InvariantBroken
from barnabas.runtime.raft_driver import LostVote
from tests.scenarios import test_scenarios
from tests.simulation.quorum import Broken, World, run_removed_leader, run_seed, run_unsynced
from tests.simulation.quorum_mutants import MUTANTS, planted

SEEDS_A_TEST = 10
FOUND = (Broken, InvariantBroken, LostVote)
SCRIPTED: dict[str, Callable[[int], World]] = {
    "leader counts what it has not synced": lambda seed: run_unsynced(seed, slow=(0,), down=1),
    "voter fetches before it has synced": lambda seed: run_unsynced(seed, slow=(1, 2), down=0),
}
"""Schedules for bugs that random ones rarely meet."""
IN_TRANSCRIPTS = {
    "records of an old epoch committed": "raft_commit",
    "check quorum off": "raft_check_quorum",
    "requests of old epochs served": "raft_errors",
}
"""Bugs that other rules mostly make up for: their transcript shows them."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, 100, SEEDS_A_TEST))
def test_the_quorum_loses_nothing_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run_seed(seed)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", [38])
def test_seeds_that_have_found_something(seed: int) -> None:
    """A pre-vote of a former voter set was counted, and asked for again without end."""
    run_seed(seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_removes_itself_applies_nothing_twice(seed: int) -> None:
    """Its high watermark moves in the same step in which it resigns."""
    run_removed_leader(seed)


@pytest.mark.parametrize("name", SCRIPTED)
def test_scripts_pass_without_a_planted_bug(name: str) -> None:
    for seed in range(8):
        SCRIPTED[name](seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bugs_are_found(name: str) -> None:
    if name in IN_TRANSCRIPTS:
        path = test_scenarios.FOLDER / f"{IN_TRANSCRIPTS[name]}.txt"
        with planted(name):
            assert any(answer != step.expected for step, answer in test_scenarios.play(path))
        return
    run = SCRIPTED.get(name, run_seed)
    assert any(_finds(name, lambda seed=seed: run(seed)) for seed in range(60))


def _finds(name: str, run: Callable[[], World]) -> bool:
    with planted(name):
        try:
            run()
        except FOUND:
            return True
    return False


def test_seeds_have_snapshots_and_voter_changes() -> None:
    worlds = [run_seed(seed) for seed in range(30, 36)]
    assert sum(world.snapshots_installed for world in worlds) > 0
    assert sum(world.changes_done for world in worlds) > 0
