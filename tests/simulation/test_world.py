"""A few seeds of the simulator, and proof that it finds planted bugs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.sim.mutants import CLUSTER_MUTANTS, MUTANTS
from barnabas.sim.world import run_seed
from tests.simulation.simulate import find_mutant, nodes_of

SEEDS_A_TEST = 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 100, SEEDS_A_TEST))
def test_clients_see_nothing_wrong_whatever_happens_to_the_node(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run_seed(seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 20, 5))
def test_clients_see_nothing_wrong_whatever_happens_to_a_cluster(first: int) -> None:
    for seed in range(first, first + 5):
        run_seed(seed, nodes_of(seed))


@pytest.mark.parametrize("seed", [316])
def test_seeds_that_have_found_something(seed: int) -> None:
    run_seed(seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*MUTANTS, *CLUSTER_MUTANTS])
def test_planted_bugs_are_found(name: str) -> None:
    assert find_mutant(name) is not None


def test_a_seed_replays_bit_for_bit_in_any_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.simulation.simulate", "--seed", "7"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        digests.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1
