"""``python -m bench spark``: topics through Spark, beside Spark's own Kafka connector, against one broker.

    python -m bench spark                        three rounds (about half an hour)
    python -m bench spark --rows 200000 --rounds 1 --kinds noop
    python -m bench spark --write                puts the table into docs/PERFORMANCE.md

Each system is a Spark session of two cores that lives as long as the run does; sessions take turns, job by job. The
connector runs on PySpark 4.0.0, Barnabas on that and on the PySpark of this environment. Needs Java, and for the
connector Maven; without them Barnabas is measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import report, spark_report
from bench.connector import Connector, Unavailable, connector
from bench.spark_jobs import Case, Cost, Topics, cases, run
from bench.spark_report import CONNECTOR, OURS, OURS_NEWEST, Figures
from bench.spark_session import Driver
from bench.systems import Barnabas, System

KINDS = ("noop", "parquet", "write")


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the broker and the sessions are ended as well
    with contextlib.ExitStack() as stack:
        system = stack.enter_context(Barnabas().start())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        drivers = _drivers(_connector(alone=options.alone), folder, stack)
        topics = Topics(system, folder, options.rows, options.partitions)
        for size in options.sizes:
            say(f"filling a topic and a folder with {topics.rows(size):,} rows of {size} B")
            topics.fill(size)
        measured = list(cases(options.kinds, options.sizes))
        figures = _measure(system, drivers, topics, measured, options)
        versions = {name: driver.version for name, driver in drivers.items()}
    sections = [
        spark_report.HEADING,
        report.stamp(options.rounds, " ".join(["python -m bench spark", *arguments])),
        spark_report.setting(topics, versions, options.sizes),
        spark_report.table(measured, figures, versions),
    ]
    print("\n\n".join(sections))
    if options.write:
        report.write(sections, markers=spark_report.MARKERS)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "bench spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2, help="rounds before that, which are not counted")
    parser.add_argument("--rows", type=int, default=4_000_000, help="of 100 B; a quarter of it of 1,000 B")
    parser.add_argument("--partitions", type=int, default=2, help="of each topic")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1000], help="bytes of a value")
    parser.add_argument("--alone", action="store_true", help="without Spark's own connector")
    parser.add_argument("--write", action="store_true", help="write docs/PERFORMANCE.md")
    return parser.parse_args(arguments)


def _connector(*, alone: bool) -> Connector | None:
    if alone:
        return None
    say("making ready Spark's own connector (the first time this downloads 500 MB)")
    try:
        return connector()
    except Unavailable as error:
        say(f"Spark's own connector is left out: {error}")
        return None


def _drivers(peer: Connector | None, folder: Path, stack: contextlib.ExitStack) -> dict[str, Driver]:
    """The sessions by the name of their column."""
    found: dict[str, Driver] = {}

    def add(name: str, python: Path, source: str, jars: str = "") -> None:
        say(f"starting a session: {name}")
        found[name] = stack.enter_context(Driver(python, source, jars, folder / f"{len(found)}.log"))

    if peer is not None:
        add(CONNECTOR, peer.python, "kafka", peer.jar_list)
        add(OURS, peer.python, "barnabas")
    if importlib.util.find_spec("pyspark") is None:
        say("PySpark is not installed in this environment: Barnabas is measured on that of the connector alone")
    else:
        add(OURS_NEWEST, Path(sys.executable), "barnabas")
    if not found:
        raise SystemExit("there is no Spark here: pip install 'barnabas[spark]'")
    return found


def _measure(
    system: System, drivers: dict[str, Driver], topics: Topics, measured: list[Case], options: argparse.Namespace
) -> Figures:
    """Rounds on the outside, and the first becomes the last from round to round: see suite.compare."""
    found: dict[tuple[Case, str], list[Cost]] = {}
    names = list(drivers)
    for number in range(-options.warm, options.rounds):
        for case in measured:
            for name in _turned(names, number):
                cost = run(system, drivers[name], case, topics)
                if number >= 0:
                    found.setdefault((case, name), []).append(cost)
                label = f"round {number + 1}" if number >= 0 else "warming up"
                told = f"{cost.rows_per_s:,.0f} rows/s, broker {cost.cpu_s_per_million:.2f} CPU s per million"
                say(f"{label}: {case.title}: {name}: {told} (load {os.getloadavg()[0]:.1f})")
    return {key: _median(costs) for key, costs in found.items()}


def _turned(names: list[str], number: int) -> Iterator[str]:
    start = number % len(names)
    yield from names[start:]
    yield from names[:start]


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.rows_per_s for cost in costs),
        statistics.median(cost.cpu_s_per_million for cost in costs),
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
