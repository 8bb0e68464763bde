"""Whole nodes under the simulator, seed after seed: ``make simulate SEEDS=1000``, ``make simulate-mutants``.

Seeds take turns between a single node, three and five.

A seed that fails is named with the shortest time of faults that still makes it fail, and the end of its trace.
``--seed N`` runs one seed and prints its digest: the same seed gives the same digest, whatever the process.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from barnabas.sim.history import Violation
from barnabas.sim.mutants import CLUSTER_MUTANTS, MUTANTS, planted
from barnabas.sim.world import run_seed, shortest_failure

SEEDS_FOR_A_MUTANT = 200


NODES = (3, 1, 3, 5, 3)
"""How many nodes a seed has, in turn."""


def nodes_of(seed: int) -> int:
    return NODES[seed % len(NODES)]


def try_seed(seed: int) -> str | None:
    """How it failed, or None."""
    try:
        run_seed(seed, nodes_of(seed))
    except Violation:
        until_ms, problem = shortest_failure(seed, nodes_of(seed))
        return f"{nodes_of(seed)} nodes, fails with {until_ms:.0f} ms of faults: {problem}"
    return None


def find_mutant(name: str, seeds: int = SEEDS_FOR_A_MUTANT) -> tuple[int, str] | None:
    """The first seed that finds the planted bug, and what it says; None where none does."""
    nodes = 3 if name in CLUSTER_MUTANTS else 1
    for seed in range(seeds):
        try:
            with planted(name):
                run_seed(seed, nodes)
        except Violation as problem:
            return seed, str(problem).partition("\n")[0]
    return None


def _run_seeds(first: int, count: int) -> bool:
    began = time.monotonic()
    failed = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for number, outcome in enumerate(pool.map(try_seed, range(first, first + count), chunksize=5), 1):
            if outcome is not None:
                failed += 1
                print(outcome, flush=True)
            if number % 100 == 0 or number == count:
                spent = time.monotonic() - began
                print(f"{number} of {count} seeds, {failed} failed, {spent:.0f} s", flush=True)
    return not failed


def _run_mutants() -> bool:
    missed = 0
    for name in (*MUTANTS, *CLUSTER_MUTANTS):
        began = time.monotonic()
        found = find_mutant(name)
        spent = time.monotonic() - began
        missed += found is None
        print(f"{name}: {f'found by seed {found[0]}' if found else 'NOT FOUND'} in {spent:.1f} s", flush=True)
        if found:
            print(f"    {found[1]}")
    return not missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one seed only; prints its digest")
    parser.add_argument("--mutants", action="store_true", help="look for the planted bugs instead")
    options = parser.parse_args()
    if options.seed is not None:
        print(run_seed(options.seed, nodes_of(options.seed)).digest)
    elif not (_run_mutants() if options.mutants else _run_seeds(options.first, options.seeds)):
        sys.exit(1)


if __name__ == "__main__":
    main()
