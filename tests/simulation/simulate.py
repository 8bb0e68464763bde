"""Whole nodes under the simulator, seed after seed: ``make simulate SEEDS=1000 SECONDS=60``, ``make simulate-mutants``.

Seeds take turns between a single node, three and five. A seed that fails is named with the shortest time of faults that
still makes it fail, and the end of its trace. ``--seed N`` runs one seed and prints its digest: the same seed gives the
same digest, whatever the process.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from barnabas.sim.history import Violation
from barnabas.sim.world import run_seed, shortest_failure
from tests.simulation import mutant_search

SECONDS = 60
NODES = (3, 1, 3, 5, 3)
"""How many nodes a seed has, in turn."""


def nodes_of(seed: int) -> int:
    return NODES[seed % len(NODES)]


def try_seed(seed: int, seconds: int) -> str | None:
    """How it failed, or None."""
    gc.disable()  # a seed makes little garbage that is cyclic before its end
    try:
        run_seed(seed, nodes_of(seed), seconds)
    except Violation:
        until_ms, problem = shortest_failure(seed, nodes_of(seed), seconds)
        return f"{nodes_of(seed)} nodes, {seconds} s, fails with {until_ms:.0f} ms of faults: {problem}"
    finally:
        gc.collect()
    return None


def _run_seeds(first: int, count: int, seconds: int, jobs: int) -> bool:
    began = time.monotonic()
    failed = 0
    with ProcessPoolExecutor(jobs) as pool:
        outcomes = pool.map(partial(try_seed, seconds=seconds), range(first, first + count), chunksize=2)
        for number, outcome in enumerate(outcomes, 1):
            if outcome is not None:
                failed += 1
                print(outcome, flush=True)
            if number % 100 == 0 or number == count:
                spent = time.monotonic() - began
                print(f"{number} of {count} seeds of {seconds} s, {failed} failed, {spent:.0f} s", flush=True)
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="simulated seconds of each seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seed", type=int, help="one seed only; prints its digest")
    parser.add_argument("--plain", action="store_true", help="that seed without transactional clients")
    parser.add_argument("--mutants", action="store_true", help="look for the planted bugs instead")
    options = parser.parse_args()
    if options.seed is not None:
        nodes, is_plain = nodes_of(options.seed), options.plain
        print(run_seed(options.seed, nodes, options.seconds, has_transactions=not is_plain).digest)
        return
    found = (
        mutant_search.search_all(options.jobs)
        if options.mutants
        else _run_seeds(options.first, options.seeds, options.seconds, options.jobs)
    )
    if not found:
        sys.exit(1)


if __name__ == "__main__":
    main()
