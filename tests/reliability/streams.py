"""Kafka Streams with exactly_once_v2 under kill -9: ``python -m tests.reliability.streams --kills 10``.

The application (``ExactlyOnce.java``) counts and sums numbers by key through a repartition topic and a changelog. It
and the brokers are killed again and again. It writes every new total, so that its output shows each step: under
read_committed the counts of a key are 1, 2, 3 …, and the last totals are those of a plain computation.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance import languages
from tests.reliability import clusters
from tests.reliability.clusters import Cluster
from tests.reliability.stable_offsets import read_committed, wait_until_stable
from tests.reliability.transaction_pool import Input

APPLICATION, INPUT, OUTPUT = "totals", "numbers", "totals-out"
PARTITIONS = 3
KEYS = 7
HANG_TIMEOUT_S = 40.0
"""The application's transaction time-out is 10 s; the rest is for brokers that are busy."""
END_TIMEOUT_S = 240.0
BROKER_SHARE = 0.4
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass
class Result:
    records: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    longest_wait_s: float = 0.0
    """Until totals came out again after a kill."""
    stable_s: float = 0.0


class Application:
    """The JVM, which keeps its state folder from one life to the next."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._output = folder / "streams.log"
        java, *rest = languages.java("ExactlyOnce")(servers)
        state = folder / "state"
        self._command = [java, *JVM, *rest[:-1], str(state), APPLICATION, INPUT, OUTPUT]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:  # as a supervisor would
            self.start()


class Run:
    def __init__(self, cluster: Cluster, brokers: int, folder: Path, seed: int) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._chance = random.Random(seed)
        self._servers = cluster.bootstrap_servers
        self._result = Result()
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        for future in admin.create_topics([NewTopic(each, PARTITIONS, brokers) for each in (INPUT, OUTPUT)]).values():
            future.result(60)
        self._input = Input(self._servers, INPUT, PARTITIONS, rate=150)
        self._application = Application(self._servers, folder)

    def run(self, kills: int, *, quiet: bool) -> Result:
        self._application.start()
        try:
            self._input.start()
            self._wait_for_more(0)
            while self._result.kills.total() < kills:
                time.sleep(self._chance.uniform(0, 2))
                what = self._strike()
                waited_s = self._wait_for_more(self._seen())
                self._result.longest_wait_s = max(self._result.longest_wait_s, waited_s)
                if not quiet:
                    print(
                        f"{self._result.kills.total():3} of {kills}: {what}, goes on after {waited_s:.1f} s", flush=True
                    )
            self._input.finish(0)
            self._wait_for_all()
            self._result.stable_s = wait_until_stable(self._servers, [OUTPUT], HANG_TIMEOUT_S)
        finally:
            self._application.kill()
        self._verify()
        return self._result

    def _strike(self) -> str:
        if self._chance.random() >= BROKER_SHARE:
            self._result.kills["application"] += 1
            self._application.kill()
            self._application.start()
            return "killed the application"
        self._result.kills["broker"] += 1
        node_id = self._chance.randint(1, self._brokers)
        self._cluster.kill(node_id)
        time.sleep(self._chance.choice((0.0, 1.0)))
        self._cluster.start(node_id)
        self._cluster.wait_for(node_id, clusters.START_TIMEOUT_S)
        return f"killed broker {node_id}"

    def _seen(self) -> int:
        return sum(len(found) for found in read_committed(self._servers, OUTPUT).values())

    def _wait_for_more(self, than: int) -> float:
        began_s = time.monotonic()
        while self._seen() <= than:
            self._application.check()
            assert time.monotonic() - began_s < END_TIMEOUT_S, f"no new totals for {END_TIMEOUT_S:.0f} s"
            time.sleep(0.2)
        return time.monotonic() - began_s

    def _wait_for_all(self) -> None:
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while (seen := self._seen()) < self._input.count:
            self._application.check()
            assert time.monotonic() < deadline_s, f"{seen} totals of {self._input.count}"
            time.sleep(0.2)

    def _verify(self) -> None:
        steps: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for messages in read_committed(self._servers, OUTPUT).values():
            for message in messages:
                count, total = (message.value() or b"").split(b"/")
                steps[(message.key() or b"").decode()].append((int(count), int(total)))
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for partition in range(PARTITIONS):
            for number in range(self._input.counts[partition]):
                counts[f"k{number % KEYS}"] += 1
                sums[f"k{number % KEYS}"] += number
        for key, found in steps.items():
            numbers = [count for count, _ in found]
            assert numbers == list(range(1, counts[key] + 1)), f"{key}: counted {len(numbers)} times, not {counts[key]}"
            assert found[-1][1] == sums[key], f"{key}: the sum is {found[-1][1]}, not {sums[key]}"
        assert set(steps) == set(counts)
        self._result.records = self._input.count


def run(*, brokers: int, kills: int, seed: int, system: str = "barnabas", quiet: bool = False) -> Result:
    with tempfile.TemporaryDirectory(prefix="streams-", ignore_cleanup_errors=True) as name:
        cluster = clusters.create(system, Path(name), brokers, {})
        with clusters.running(cluster, brokers):
            return Run(cluster, brokers, Path(name), seed).run(kills, quiet=quiet)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--system", choices=clusters.SYSTEMS, default="barnabas")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    clusters.interrupt_on_sigterm()
    print(f"seed {options.seed}", flush=True)
    began_s = time.monotonic()
    result = run(brokers=options.brokers, kills=options.kills, seed=options.seed, system=options.system)
    print(
        f"{options.system}, {options.brokers} broker(s): {result.records} records counted once each, "
        f"{dict(result.kills)} kills, the longest wait for new totals {result.longest_wait_s:.1f} s, stable "
        f"{result.stable_s:.1f} s after the end, {time.monotonic() - began_s:.0f} s"
    )


if __name__ == "__main__":
    main()
