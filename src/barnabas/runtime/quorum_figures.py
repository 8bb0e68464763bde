"""Figures of the replicas of the metadata log, for DescribeQuorum (KIP-836)."""

from __future__ import annotations

from msgspec import Struct

from barnabas.core.raft.machine import RaftMachine, Voter
from barnabas.core.raft.roles import ReplicaProgress
from barnabas.model.ports import Clock


class ReplicaFigures(Struct, frozen=True):
    """Of one replica, for DescribeQuorum. Times are of the wall clock, -1 where unknown."""

    voter: Voter
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


def voters(machine: RaftMachine, clock: Clock, log_end_offset: int) -> list[ReplicaFigures]:
    """With figures where this node leads."""
    progress = {each.replica: each for each in machine.progress}
    now_ms = clock.now_ms()
    own = ReplicaFigures(machine.me, log_end_offset, now_ms, now_ms)
    return [own if voter == machine.me else _figures(clock, voter, progress.get(voter)) for voter in machine.voters]


def observers(machine: RaftMachine, clock: Clock) -> list[ReplicaFigures]:
    replicas = (each for each in machine.progress if not machine.voters.contains(each.replica))
    return [_figures(clock, each.replica, each) for each in replicas]


def _figures(clock: Clock, voter: Voter, progress: ReplicaProgress | None) -> ReplicaFigures:
    if progress is None:
        return ReplicaFigures(voter, -1, -1, -1)
    ahead_ms = clock.now_ms() - clock.monotonic_ms()

    def wall_ms(time_ms: int) -> int:
        return time_ms + ahead_ms if time_ms >= 0 else -1

    return ReplicaFigures(
        voter, progress.end_offset, wall_ms(progress.last_fetch_ms), wall_ms(progress.last_caught_up_ms)
    )
