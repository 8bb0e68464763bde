"""A few seeds of the simulator, and proof that it finds planted bugs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.sim.mutants import CLUSTER_MUTANTS, MUTANTS, TRANSACTION_MUTANTS
from barnabas.sim.world import run_seed
from tests.simulation import mutant_search
from tests.simulation.simulate import nodes_of

SEEDS_A_TEST = 10


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 30, SEEDS_A_TEST))
def test_clients_see_nothing_wrong_whatever_happens_to_the_node(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run_seed(seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 20, 5))
def test_clients_see_nothing_wrong_whatever_happens_to_a_cluster(first: int) -> None:
    for seed in range(first, first + 5):
        run_seed(seed, nodes_of(seed))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("seed", "nodes", "seconds"),
    [
        (316, 1, 30),
        (17, 3, 60),  # the last voter could not be elected while its only voter waited for its own removal
        (1018, 5, 60),  # a node did not start because the disk of the active controller was full for a moment
        (9073, 5, 60),  # a full disk while a fetched snapshot was installed
    ],
)
def test_seeds_that_have_found_something(seed: int, nodes: int, seconds: int) -> None:
    run_seed(seed, nodes, seconds, has_transactions=False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*MUTANTS, *CLUSTER_MUTANTS, *TRANSACTION_MUTANTS])
def test_planted_bugs_are_found(name: str) -> None:
    assert mutant_search.find(name) is not None


def test_a_seed_replays_bit_for_bit_in_any_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.simulation.simulate", "--seed", "7", "--seconds", "30"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        digests.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1
