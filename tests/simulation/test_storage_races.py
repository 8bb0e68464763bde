"""A few seeds of the simulated races, and proof that they find planted bugs."""

from __future__ import annotations

import pytest

from barnabas.storage.flush_plan import FlushFile
from barnabas.storage.offset_checkpoints import OffsetCheckpoints
from tests.simulation.storage_races import Violation, run_seed

SEEDS = 150
SEEDS_FOR_A_MUTANT = 400


def test_no_race_loses_records_or_ends_the_broker() -> None:
    _run_seeds(SEEDS)


def _run_seeds(count: int) -> None:
    for seed in range(count):
        run_seed(seed)


@pytest.mark.parametrize("seed", [9, 11, 24, 49, 84, 129, 1579])
def test_seeds_that_have_found_something(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("mutant", ["a removed file is a failed sync", "checkpoints outlive their topic"])
def test_planted_bugs_are_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant == "a removed file is a failed sync":
        monkeypatch.setattr(FlushFile, "is_gone", False)
    else:
        monkeypatch.setattr(OffsetCheckpoints, "holds", lambda *_: False)
    with pytest.raises(Violation):
        _run_seeds(SEEDS_FOR_A_MUTANT)
