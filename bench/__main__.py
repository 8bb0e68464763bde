"""``python -m bench``: the figures of docs/PERFORMANCE.md, beside Apache Kafka in the same run.

    python -m bench                    everything, five rounds (about half an hour); writes the page and the plot
    python -m bench compare --rounds 3 the comparison with librdkafka as the client
    python -m bench raw                CPU of Barnabas under prepared requests, without a client library
    python -m bench life               start, recovery after kill -9, memory
    python -m bench groups             times of group operations, and 10,000 partitions
    python -m bench cluster            three brokers: acks=all, failover, partitions, a replica that catches up
    python -m bench --no-kafka         Barnabas only
    python -m bench compare --librdkafka /usr/lib/x86_64-linux-gnu/librdkafka.so.1
                                       with another version of the client, here Debian's
    python -m bench spark              topics through Spark, beside Spark's own connector; see its --help

Needs gcc (the load generator is a C program on the librdkafka of confluent-kafka), and for Kafka Java and Maven.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from bench import cluster_rows, clusters, memory, rdkafka, report, suite, systems

PARTS = ("compare", "fsync", "raw", "life", "groups", "cluster")


def main() -> None:
    if sys.argv[1:2] == ["spark"]:
        from bench import spark  # noqa: PLC0415 -- the other parts do without Arrow

        spark.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of messages of each run, e.g. 0.1"
    )
    parser.add_argument("--warm", type=float, default=45.0, help="seconds to warm Kafka")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the log to recover")
    parser.add_argument("--partitions", type=int, default=10_000, help="for the parts groups and cluster")
    parser.add_argument("--failovers", type=int, default=5, help="for the part cluster: leaders killed")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--write", action="store_true", help="write docs/PERFORMANCE.md (the default without a part)")
    parser.add_argument(
        "--hold",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="touch the machine's free memory first, so that no broker is charged for it; takes a minute or two",
    )
    parser.add_argument(
        "--librdkafka", type=Path, metavar="FILE", help="the client's library; else that of confluent-kafka"
    )
    options = parser.parse_args()
    rdkafka.chosen = options.librdkafka
    reason = None if options.no_kafka else systems.unavailable()
    if reason is not None:
        say(f"Kafka is left out: {reason}")
    kinds = suite.default_systems(kafka=not options.no_kafka and reason is None)
    parts = [options.part] if options.part else list(PARTS)
    sections = [report.heading(), report.stamp(options.rounds, " ".join(["python -m bench", *sys.argv[1:]]))]
    with memory.held(options.hold, say):
        outcomes = measure(parts, kinds, options, sections)
    print("\n\n".join(sections))
    if options.write or options.part is None:
        report.write(sections)
        if len(kinds) > 1 and outcomes:
            report.plot(outcomes)


def measure(
    parts: list[str], kinds: list[type[systems.System]], options: argparse.Namespace, sections: list[str]
) -> list[suite.Outcome]:
    """Adds a section for each part; returns the comparisons with Kafka."""
    outcomes: list[suite.Outcome] = []
    if "compare" in parts:
        outcomes += compared(kinds, suite.rows(options.scale), options, fsync=False)
    if "fsync" in parts:
        outcomes += compared(kinds, suite.fsync_rows(options.scale), options, fsync=True)
    if outcomes:
        sections.append(report.table(outcomes))
    if "life" in parts:
        sections.append(report.pairs(suite.lives(kinds, int(options.gigabytes * 1e9), say)))
    if "groups" in parts:
        sections.append(report.pairs(suite.group_lives(kinds, options.partitions, options.rounds, say)))
    if "cluster" in parts:
        sections.extend(cluster(options, kafka=len(kinds) > 1))
    if "raw" in parts:
        sections.append(report.costs(suite.broker_cost(options.scale, say)))
    return outcomes


def compared(
    kinds: list[type[systems.System]], rows: list[suite.Row], options: argparse.Namespace, *, fsync: bool
) -> list[suite.Outcome]:
    running = [kind().start(fsync=fsync) for kind in kinds]
    try:
        for system in running:
            if system.name == "kafka":
                suite.warm_up(system, options.warm / (3 if fsync else 1), say)
        return suite.compare(rows, running, options.rounds, say)
    finally:
        for system in running:
            system.__exit__()


def cluster(options: argparse.Namespace, *, kafka: bool) -> list[str]:
    """Throughput and latency side by side, then what needs a cluster for itself, one system after the other."""
    kinds: list[type[clusters.Cluster]] = [clusters.BarnabasCluster, *([clusters.KafkaCluster] if kafka else [])]
    outcomes = compared([*kinds], cluster_rows.rows(options.scale), options, fsync=False)
    found: dict[str, dict[str, str]] = {}
    for kind in kinds:
        with kind() as system:
            system.start()
            for title, value in cluster_life(system, options):
                found.setdefault(title, {})[system.name] = value
    return [report.table(outcomes), report.pairs(list(found.items()))]


def cluster_life(system: clusters.Cluster, options: argparse.Namespace) -> list[tuple[str, str]]:
    memory_mb = system.memory_mb()
    gaps = sorted(cluster_rows.failover_gaps(system, options.failovers, say))
    few_s, many_s = cluster_rows.creation(system, 1000), cluster_rows.creation(system, options.partitions)
    rate = cluster_rows.catching_up(system, int(options.gigabytes * 1000), say)
    return [
        ("memory of three brokers, idle", f"{memory_mb:,.0f} MB"),
        ("leader killed: median gap", f"{statistics.median(gaps):.1f} s" if gaps else "-"),
        ("leader killed: longest gap", f"{gaps[-1]:.1f} s" if gaps else "-"),
        ("1,000 partitions × 3 created and writable", f"{few_s:.1f} s"),
        (f"{options.partitions:,} partitions × 3 created and writable", f"{many_s:.1f} s"),
        ("a killed replica starts and catches up", f"{rate:.0f} MB/s"),
    ]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
