"""Writes docs/PERFORMANCE.md and its plot."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from bench import rdkafka
from bench.suite import Outcome

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- figures: made by python -m bench -->", "<!-- /figures -->"


def table(outcomes: list[Outcome]) -> str:
    lines = ["| | | Barnabas | Kafka | ratio | aim | |", "|---|---|---|---|---|---|---|"]
    for outcome in outcomes:
        for position, column in enumerate(outcome.medians["barnabas"]):
            ours, theirs = outcome.medians["barnabas"][column], outcome.medians.get("kafka", {}).get(column)
            ratio, aim, reached = outcome.ratio(column), outcome.row.aims.get(column), outcome.reached(column)
            cells = [
                outcome.row.title if position == 0 else "",
                column,
                number(ours),
                number(theirs),
                f"{ratio:.2f}" if ratio is not None else "",
                f"≤ {aim}" if aim is not None else "",
                "" if reached is None else ("yes" if reached else "**no**"),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {outcome.row.title}: {outcome.row.note}." for outcome in outcomes if outcome.row.note]
    return "\n".join([*lines, "", *notes])


def number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def pairs(rows: list[tuple[str, dict[str, str]]]) -> str:
    lines = ["| | Barnabas | Kafka |", "|---|---|---|"]
    lines += [f"| {title} | {cells.get('barnabas', '')} | {cells.get('kafka', '')} |" for title, cells in rows]
    return "\n".join(lines)


def costs(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| broker alone | |", "|---|---|", *(f"| {title} | {shown} |" for title, shown in rows)])


def heading() -> str:
    return f"## Build {_commit()}, {_today()}"


def stamp(rounds: int, command: str) -> str:
    versions = f"Python {platform.python_version()}, librdkafka {rdkafka.version()}"
    return f"`{command}`, {_today()}, {versions}, {rounds} interleaved rounds, medians."


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _commit() -> str:
    command = ["git", "-C", str(DOCS), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "without git"


def write(
    sections: list[str], path: Path = DOCS / "PERFORMANCE.md", *, markers: tuple[str, str] = (BEGIN, END)
) -> None:
    """Replaces what is between the markers; a page without them gets them at its end."""
    begin, end = markers
    text = path.read_text(encoding="utf-8")
    head, found, rest = text.partition(begin)
    tail = rest.partition(end)[2] if found else "\n"
    head = head if found else f"{head.rstrip()}\n\n"
    path.write_text(f"{head}{begin}\n\n" + "\n\n".join(sections) + f"\n\n{end}{tail}", encoding="utf-8")


def plot(outcomes: list[Outcome], path: Path = DOCS / "performance.png") -> None:
    """One bar per ratio to Kafka: green where the aim is reached, red where not, grey without an aim."""
    import matplotlib  # noqa: PLC0415 -- only for the plot

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    shown = [
        (f"{outcome.row.title}: {column}", ratio, outcome.reached(column))
        for outcome in outcomes
        for column in outcome.medians["barnabas"]
        if (ratio := outcome.ratio(column)) is not None
    ]
    figure, axes = pyplot.subplots(figsize=(10, 0.42 * len(shown) + 1.2))
    colours = {True: "#2a7d4f", False: "#b5482f", None: "#7f8c9b"}
    axes.barh([title for title, _, _ in shown], [r for _, r, _ in shown], color=[colours[x] for _, _, x in shown])
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("ratio to Kafka in the same run; less is better but for rates, which have no aim (grey)")
    for position, (_, ratio, _) in enumerate(shown):
        axes.text(ratio, position, f" {ratio:.2f}", va="center", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
