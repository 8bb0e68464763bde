"""The figures of a fault run: a table of gaps by kind of fault, and a plot of them."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    label: str
    target: str
    victim: int
    was_controller: bool
    duration_s: float
    began_s: float
    ended_s: float
    healthy_s: float | None
    """From the end of the fault until every replica was in sync; None where that took too long."""
    gap_s: float
    """The longest time without an acknowledgement, on the worst partition."""
    producer_gap_s: float
    """The same for the worst pair of a producer and a partition."""
    read_delay_s: float
    """The longest time from an acknowledgement to the poll that returns the record."""


def longest_gap(times: Sequence[float], began_s: float, ended_s: float) -> float:
    """Between neighbours of ``times`` (sorted) that overlap the window; the end of the window counts as one."""
    inside = [each for each in times if began_s < each <= ended_s]
    before = max((each for each in times if each <= began_s), default=began_s)
    edges = [before, *inside, max([ended_s, *inside])]
    return max(later - earlier for earlier, later in itertools.pairwise(edges))


def table(outcomes: Sequence[Outcome]) -> str:
    lines = [f"{'fault':30} {'runs':>4}  gap s: {'median':>6} {'p95':>6} {'max':>6}   healthy max  read delay max"]
    for label, group in _by_label(outcomes).items():
        gaps = sorted(each.gap_s for each in group)
        healthy = max(float("inf") if each.healthy_s is None else each.healthy_s for each in group)
        delay = max(each.read_delay_s for each in group)
        middle, high, most = statistics.median(gaps), gaps[min(len(gaps) - 1, round(0.95 * len(gaps)))], gaps[-1]
        lines.append(
            f"{label:30} {len(group):4}         {middle:6.2f} {high:6.2f} {most:6.2f}   {healthy:11.1f}  {delay:14.1f}"
        )
    return "\n".join(lines)


def _by_label(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.label].append(outcome)
    return dict(sorted(groups.items(), key=lambda item: (item[0].split(",")[0], len(item[0]), item[0])))


def write(outcomes: Sequence[Outcome], path: Path) -> None:
    with path.open("w") as stream:
        for outcome in outcomes:
            stream.write(json.dumps(asdict(outcome)) + "\n")


def read(path: Path) -> list[Outcome]:
    return [Outcome(**json.loads(line)) for line in path.read_text().splitlines()]


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    groups = _by_label(outcomes)
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(groups) + 1.6), layout="constrained")
    for row, group in enumerate(groups.values()):
        gaps = [each.gap_s for each in group]
        axes.plot(gaps, [row] * len(gaps), "o", color="#3b6ea5", alpha=0.45, markersize=6, markeredgewidth=0)
        axes.plot([statistics.median(gaps)], [row], "|", color="#b0413e", markersize=16, markeredgewidth=2.5)
    axes.set_yticks(range(len(groups)), [f"{label} ({len(group)})" for label, group in groups.items()])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("longest gap between acknowledgements on the worst partition, seconds (bar: median)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
