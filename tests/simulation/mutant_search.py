"""Looks for every planted bug: by a schedule where chance rarely meets it, else by seeds, those first that found it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from barnabas.sim.history import Violation
from barnabas.sim.mutants import CLUSTER_MUTANTS, MUTANTS, TRANSACTION_MUTANTS, planted
from barnabas.sim.world import run_seed
from tests.simulation import schedules, transaction_schedules

SEEDS = 100
SECONDS = 30

SCHEDULES: dict[str, Callable[[int], None]] = {
    "vote forgotten at a restart": schedules.double_vote,
    "records of an old epoch committed": schedules.figure_8,
    "check quorum off": schedules.zombie_controller,
    "voter fetches before it has synced": schedules.unsynced_voters,
    "removed voter never stands": schedules.pending_removal,
    "follower fetches before it has flushed": schedules.unflushed_followers,
    "min.insync.replicas ignored": schedules.too_few_in_sync,
    "in-sync set shrunk without the controller": schedules.unanswered_proposal,
    "leader that is cut off leads on": schedules.zombie_leader,
    "stale AlterPartition accepted": schedules.delayed_alter_partition,
    "restarted replica taken for its former self": schedules.restarted_replica,
    "transaction complete with its first marker": transaction_schedules.marker_leader_moves,
    "transactions never time out": transaction_schedules.timed_out_producer,
    "aborted transactions not found again": transaction_schedules.crash_after_aborts,
    "aborted transactions not synced": transaction_schedules.power_cut_after_aborts,
    "transactional batches not verified": transaction_schedules.delayed_produce,
    "outcome of a transaction not awaited": transaction_schedules.unreplicated_outcome,
    "prepared transactions forgotten at a failover": transaction_schedules.coordinator_dies_before_markers,
    "open transactions unknown to followers": transaction_schedules.leader_moves_in_transaction,
}
KNOWN_SEEDS: dict[str, int] = {
    "acknowledged before the sync": 1,
    "high watermark off by one": 3,
    "metadata committed without a sync": 3,
    "group replies do not wait for the high watermark": 39,
    "producers expire by their records' timestamps": 17,
    "every stop taken for a clean one": 7,
    "recovery checks no checksums": 28,
    "names of new files not synced": 4,
    "vote answered before it is on disk": 1,
    "half a metadata snapshot installed": 4,
    "vote without a look at the log": 6,
    "metadata log not truncated": 15,
    "high watermark one too high": 2,
    "leader does not look for divergence": 4,
    "follower keeps a divergent tail": 4,
    "records without a leader epoch": 11,
    "consumers see what is not committed": 10,
    "producers unknown to followers": 1,
    "fenced replica counted as in sync": 2,
    "replica outside the in-sync set elected": 1,
    "unclean election without being asked": 6,
    "producer epoch not bumped by InitProducerId": 1,
}
"""Seeds that have found the bug, where it is not seed 0. After a change of the code it may be another: then a search
finds it."""


class Found(NamedTuple):
    by: str
    """The schedule or the seed."""
    what: str
    spent_s: float


def find(name: str) -> Found | None:
    """How the planted bug shows; None where nothing finds it."""
    began = time.process_time()
    history = SCHEDULES.get(name)
    if history is not None:
        for seed in range(1, 9):
            problem = _problem(name, lambda seed=seed: history(seed))  # type: ignore[misc]
            if problem is not None:
                return Found(f"schedule {history.__name__}, seed {seed}", problem, time.process_time() - began)
        return None
    has_transactions = name in TRANSACTION_MUTANTS
    nodes = 1 if name in MUTANTS else 3
    known = KNOWN_SEEDS.get(name, 0)
    for seed in (known, *(each for each in range(SEEDS) if each != known)):
        problem = _problem(
            name,
            lambda seed=seed: run_seed(seed, nodes, SECONDS, has_transactions=has_transactions),  # type: ignore[misc]
        )
        if problem is not None:
            return Found(f"seed {seed}", problem, time.process_time() - began)
    return None


def _problem(name: str, run: Callable[[], object]) -> str | None:
    try:
        with planted(name):
            run()
    except Violation as problem:
        return str(problem).partition("\n")[0]
    return None


def search_all(jobs: int) -> bool:
    """Prints what finds each bug, and how long that took; False where one is not found."""
    names = [*MUTANTS, *CLUSTER_MUTANTS, *TRANSACTION_MUTANTS]
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for name, found in zip(names, pool.map(find, names), strict=True):
            missed += found is None
            print(f"{name}: {f'{found.by} in {found.spent_s:.1f} s' if found else 'NOT FOUND'}", flush=True)
            if found:
                print(f"    {found.what[:200]}", flush=True)
    return not missed
