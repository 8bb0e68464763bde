"""What is measured, and the aims.

Every row runs both systems in turn, round after round, and takes the median of each. Aims are for what a broker costs
(CPU per MB and per request) and for latency at a fixed rate. Rates have none: the client runs on the same cores, so a
rate says as much about the client as about the broker.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench import groups, life, raw, rdkafka
from bench.systems import Barnabas, Kafka, System

PARTITIONS = 8
MESSAGE = 100
TRANSACTION_MESSAGES = 100
RUNS_FOR_LATENCY = 6
SHORT_RUNS = 3
STARTS = 5
Values = dict[str, float]
Measure = Callable[[System, int], Values]
Aims = dict[str, float]
"""Column -> the highest ratio to Kafka."""


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    title: str
    measure: Measure
    aims: Aims
    note: str = ""
    repeats: int = 1
    """Runs of each system in a round, in turn. The machine stalls for 10 ms now and then, which decides a percentile
    of a few long runs; runs of a second differ by a third from one to the next."""


@dataclass
class Outcome:
    row: Row
    medians: dict[str, Values]
    """System -> column -> median."""

    def ratio(self, column: str) -> float | None:
        kafka = self.medians.get("kafka", {}).get(column)
        return self.medians["barnabas"][column] / kafka if kafka else None

    def reached(self, column: str) -> bool | None:
        ratio, aim = self.ratio(column), self.row.aims.get(column)
        return None if ratio is None or aim is None else ratio <= aim


def _produce(batch_bytes: int, codec: str, scale: float, acks: str = "1") -> Measure:
    def measure(system: System, round_number: int) -> Values:
        count = int(3_000_000 * scale)
        topic = f"produce-{batch_bytes}-{codec}-{acks}-{round_number}"
        result = rdkafka.run(system, "produce", topic, PARTITIONS, count, MESSAGE, batch_bytes, codec, acks)
        return {"msg/s": result.rate, "CPU ms/MB": result.cpu_ms_per_mb(MESSAGE)}

    return measure


def _consume(scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        count = int(3_000_000 * scale)
        result = rdkafka.run(system, "consume", f"produce-65536-none-1-{round_number}", PARTITIONS, count)
        return {"msg/s": result.rate, "CPU ms/MB": result.cpu_ms_per_mb(MESSAGE)}

    return measure


def _requests(scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        count = int((40_000 if system.name == "barnabas" else 20_000) * scale)
        result = rdkafka.run(system, "requests", "requests", count, MESSAGE)
        return {"requests/s": result.rate, "CPU µs": result.cpu_s / result.count * 1e6}

    return measure


def _rate(mode: str, scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        result = rdkafka.run(system, mode, "rate", int(4_000 * scale), MESSAGE, 2000, "1")
        return {"p50 ms": result.p50_ms, "p99 ms": result.p99_ms, "CPU %": result.cpu_s / result.seconds * 100}

    return measure


def _serial(scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        result = rdkafka.run(system, "serial", "serial", int(10_000 * scale), MESSAGE, "1")
        return {"p50 ms": result.p50_ms, "p99 ms": result.p99_ms}

    return measure


def _transactions(partitions: int, scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        count = max(int(1_000 * scale), 1)
        topic = f"transactions-{partitions}"
        result = rdkafka.run(system, "transactions", topic, partitions, count, TRANSACTION_MESSAGES, MESSAGE)
        return {
            "transactions/s": result.rate,
            "commit p50 ms": result.p50_ms,
            "commit p99 ms": result.p99_ms,
            "CPU ms each": result.cpu_s / result.count * 1e3,
        }

    return measure


def _fsync(scale: float) -> Measure:
    def measure(system: System, round_number: int) -> Values:
        count = int(1_000_000 * scale)
        topic = f"fsync-{round_number}"
        result = rdkafka.run(system, "produce", topic, PARTITIONS, count, MESSAGE, 65536, "none", "1")
        return {"msg/s": result.rate}

    return measure


def rows(scale: float) -> list[Row]:
    producing: Aims = {"CPU ms/MB": 0.5}
    latency: Aims = {"p50 ms": 0.9, "p99 ms": 0.9}
    return [
        Row("produce 100 B, 64 KB batches", _produce(65536, "none", scale), producing),
        Row("consume 100 B, 64 KB batches", _consume(scale), {"CPU ms/MB": 0.7}, repeats=SHORT_RUNS),
        Row("produce 100 B, 1 MB batches", _produce(1_000_000, "none", scale), producing),
        Row(
            "produce 100 B, 64 KB batches, lz4",
            _produce(65536, "lz4", scale),
            producing,
            "Kafka decompresses a compressed batch and checks every record; Barnabas checks header, checksum and count",
            repeats=SHORT_RUNS,
        ),
        Row("produce 100 B, 64 KB batches, idempotent", _produce(65536, "none", scale, "idempotent"), producing),
        Row("produce 100 B, 64 KB batches, lz4, idempotent", _produce(65536, "lz4", scale, "idempotent"), producing),
        Row("one message per request, 5 in flight", _requests(scale), {"CPU µs": 0.4}, repeats=SHORT_RUNS),
        Row("2,000 msg/s, linger 0", _rate("rate", scale), latency, repeats=RUNS_FOR_LATENCY),
        Row(
            "2,000 msg/s, linger 0, busy client",
            _rate("spin", scale),
            latency,
            "the client polls without sleeping and so takes one of the two cores",
            repeats=RUNS_FOR_LATENCY,
        ),
        Row("one message at a time", _serial(scale), {}),
        Row("transactions of 100 × 100 B, one partition", _transactions(1, scale), {}, repeats=SHORT_RUNS),
        Row("transactions of 100 × 100 B, eight partitions", _transactions(8, scale), {}, repeats=SHORT_RUNS),
    ]


def fsync_rows(scale: float) -> list[Row]:
    return [Row("fsync per append, 64 KB batches", _fsync(scale), {})]


def compare(
    measured: Iterable[Row], systems: list[System], rounds: int, say: Callable[[str], None], first_round: int = 0
) -> list[Outcome]:
    """Rounds are the outer loop: a disturbance of the machine affects every row and system alike."""
    listed = list(measured)
    found: dict[tuple[str, str], list[Values]] = {}
    for number in range(first_round, first_round + rounds):
        for row in listed:
            for system in (systems if number % 2 == 0 else systems[::-1]) * row.repeats:
                values = row.measure(system, number)
                found.setdefault((row.title, system.name), []).append(values)
                shown = ", ".join(f"{column} {value:,.3g}" for column, value in values.items())
                say(f"round {number + 1}: {row.title}: {system.name}: {shown}")
    return [
        Outcome(row, {system.name: _medians(found[row.title, system.name]) for system in systems}) for row in listed
    ]


def _medians(values: list[Values]) -> Values:
    return {column: statistics.median(each[column] for each in values) for column in values[0]}


def warm_up(system: System, seconds: float, say: Callable[[str], None]) -> None:
    """Lets the JVM compile its hot code, that for compressed batches too: a cold one is half as fast."""
    say(f"warming {system.name} for {seconds:.0f} s")
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        rdkafka.run(system, "produce", "warm", PARTITIONS, 1_000_000, MESSAGE, 65536, "none", "1")
        rdkafka.run(system, "produce", "warm-lz4", PARTITIONS, 1_000_000, MESSAGE, 65536, "lz4", "1")
        rdkafka.run(system, "consume", "warm", PARTITIONS, 1_000_000)
        rdkafka.run(system, "requests", "warm-requests", 5_000, MESSAGE)
        rdkafka.run(system, "transactions", "warm-transactions", PARTITIONS, 200, TRANSACTION_MESSAGES, MESSAGE)


def broker_cost(scale: float, say: Callable[[str], None]) -> list[tuple[str, str]]:
    """Barnabas without a client library: the load generator of ``raw`` sends prepared requests."""
    results = []
    with Barnabas().start() as system:
        small = raw.produce(system, "raw-small", raw.batch_of(0), int(40_000 * scale))
        results.append(("produce, one 100 B message per request", f"{small.cpu_us_per_request:.1f} µs CPU per request"))
        for title, size in (("64 KB", 65_536), ("1 MB", 1_000_000)):
            batch = raw.batch_of(size)
            count = int(400e6 * scale / len(batch))
            cost = raw.produce(system, f"raw-{size}", batch, count)
            results.append((f"produce, {title} batches", f"{cost.cpu_ms_per_mb:.2f} ms CPU per MB"))
            cost = raw.fetch(system, f"raw-{size}", size + 1000, count)
            results.append((f"fetch, {title} at a time", f"{cost.cpu_ms_per_mb:.2f} ms CPU per MB"))
    for title, shown in results:
        say(f"{title}: {shown}")
    return results


def lives(
    systems: list[type[System]], total_bytes: int, say: Callable[[str], None]
) -> list[tuple[str, dict[str, str]]]:
    """Start and recovery times, memory and idle CPU of each system."""
    table: dict[str, dict[str, str]] = {}

    def put(title: str, name: str, value: str) -> None:
        table.setdefault(title, {})[name] = value
        say(f"{title}: {name}: {value}")

    for kind in systems:
        starts = statistics.median(_first_start(kind) for _ in range(STARTS))
        put("start to first acknowledged message, new folder", kind.name, f"{starts:.2f} s")
        with kind().start() as system:
            memory, share = life.idle(system)
            put("idle: memory; CPU of one core", kind.name, f"{memory:.0f} MB; {share * 100:.1f} %")
            again = life.recovery(system, 65_536, total_bytes)
            put(f"start after kill -9, {total_bytes / 1e9:.0f} GB at 64 KB batches", kind.name, f"{again:.2f} s")
            again = life.recovery(system, 1_000, total_bytes)
            put(f"start after kill -9, {total_bytes / 1e9:.0f} GB more at 1 KB batches", kind.name, f"{again:.2f} s")
            put("memory after that load", kind.name, f"{system.memory_mb():.0f} MB")
    return list(table.items())


def _first_start(kind: type[System]) -> float:
    with kind() as system:
        return life.start_to_first_ack(system)


def group_lives(
    systems: list[type[System]], partitions: int, rounds: int, say: Callable[[str], None]
) -> list[tuple[str, dict[str, str]]]:
    """Times of group operations, and of operations with many partitions."""
    table: dict[str, dict[str, str]] = {}
    for kind in systems:
        with kind().start() as system:
            firsts = [groups.first_message(system, f"first-{n}") for n in range(rounds)]
            moves = [groups.join_and_leave(system, f"moves-{n}") for n in range(rounds)]
            found = {
                "new group: subscribe to first message": f"{statistics.median(firsts):.2f} s",
                "second member: join to its assignment": f"{statistics.median(m[0] for m in moves):.2f} s",
                "second member leaves: to full reassignment": f"{statistics.median(m[1] for m in moves):.2f} s",
                **groups.many_partitions(system, partitions),
            }
        for title, value in found.items():
            table.setdefault(title, {})[kind.name] = value
            say(f"{title}: {kind.name}: {value}")
    return list(table.items())


def default_systems(*, kafka: bool) -> list[type[System]]:
    return [Barnabas, Kafka] if kafka else [Barnabas]
