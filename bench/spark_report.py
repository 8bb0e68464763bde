"""The table of ``python -m bench spark``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.report import number
from bench.spark_jobs import Case, Cost, Topics

CONNECTOR, OURS, OURS_NEWEST = "connector", "Barnabas", "Barnabas, newest"
MARKERS = ("<!-- spark figures: made by python -m bench spark -->", "<!-- /spark figures -->")
HEADING = "## Beside Spark's own Kafka connector"
Figures = Mapping[tuple[Case, str], Cost]


def setting(topics: Topics, versions: Mapping[str, str], sizes: Sequence[int]) -> str:
    rows = ", ".join(f"{topics.rows(size):,} rows of {size:,} B" for size in sizes)
    peer = versions.get(CONNECTOR)
    on = f"the connector and Barnabas on PySpark {peer}" if peer else "the connector could not be run"
    newest = f", Barnabas on {versions[OURS_NEWEST]} as well" if OURS_NEWEST in versions else ""
    return (
        f"One broker, {rows}, {topics.partitions} partitions, all columns, a session of two cores for each system: "
        f'{on}{newest}. Aims are for the ratio on the same Spark; the column "newest" is Barnabas on its newest Spark '
        "against that connector. Times are from the start of a query to its end; broker CPU is in seconds per million "
        "rows."
    )


def table(measured: Sequence[Case], figures: Figures, versions: Mapping[str, str]) -> str:
    names = [name for name in (CONNECTOR, OURS, OURS_NEWEST) if name in versions]
    titles = [f"{name.partition(',')[0]} ({versions[name]})" for name in names]
    heads = ["", "", *titles, "ratio", "newest", "aim", ""]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for case in measured:
        rates = {name: figures[case, name].rows_per_s for name in names}
        costs = {name: figures[case, name].cpu_s_per_million for name in names}
        lines.append(_line([case.title, "rows/s", *_numbers(rates, names), *_judged(rates, case.goal, more=True)]))
        lines.append(_line(["", "broker CPU s", *_numbers(costs, names), *_judged(costs, 1.0, more=False)]))
    return "\n".join(lines)


def _numbers(values: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [number(values[name]) for name in names]


def _judged(values: Mapping[str, float], goal: float, *, more: bool) -> list[str]:
    """The ratios, the aim for the first, and whether it is reached."""
    wanted = f"≥ {goal}" if more else f"< {goal}"
    theirs = values.get(CONNECTOR)
    if not theirs:
        return ["", "", wanted, ""]
    ratio = values[OURS] / theirs
    newest = f"{values[OURS_NEWEST] / theirs:.2f}" if OURS_NEWEST in values else ""
    reached = ratio >= goal if more else ratio < goal
    return [f"{ratio:.2f}", newest, wanted, "yes" if reached else "**no**"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
