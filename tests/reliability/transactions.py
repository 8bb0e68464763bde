"""Exactly once under kill -9: ``python -m tests.reliability.transactions --brokers 3 --kills 50``.

Workers read numbered records and write them to another topic, with their offsets, in transactions. Workers are killed
and paused beyond their session, brokers are killed, one and all. In the end the output under read_committed is the
input, each record once and in order, no transaction is open, and the group's offsets are the ends of the input. With
``--system kafka`` Apache Kafka serves in place of Barnabas.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.wire import Client
from barnabas.client.wire import groups as group_client
from barnabas.model.ids import TopicPartition
from tests.reliability import clusters
from tests.reliability.clusters import Cluster
from tests.reliability.stable_offsets import read_committed, wait_until_stable
from tests.reliability.transaction_pool import Input, Output, Pool
from tests.reliability.transaction_worker import Task

SOURCE, TARGET, GROUP = "input", "output", "workers"
PARTITIONS = 4
WORKERS = 3
TRANSACTION_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 3000
HANG_TIMEOUT_S = TRANSACTION_TIMEOUT_MS / 1000 + 20
"""After that no transaction may be open: its own time-out, and the bound for the coordinator to write the markers."""
END_TIMEOUT_S = 240.0
PROGRESS_SHARE = 0.7
"""Of the faults, that the next one waits until records come out again; the others strike while all recovers."""
SETTINGS = {"group.min.session.timeout.ms": "1000"}
KINDS = {"kill worker": 9, "kill broker": 7, "kill all brokers": 1, "pause worker": 3}


@dataclass
class Result:
    records: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    pauses: int = 0
    longest_gap_s: float = 0.0
    stable_s: float = 0.0
    complaints: Counter[str] = field(default_factory=Counter)


class Run:
    def __init__(self, cluster: Cluster, brokers: int, folder: Path, ids: str, seed: int) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._chance = random.Random(seed)
        self._servers = cluster.bootstrap_servers
        self._result = Result()
        self._create_topics()
        self._input = Input(self._servers, SOURCE, PARTITIONS, rate=400)
        self._output = Output(self._servers, TARGET, PARTITIONS)
        self._pool = Pool([self._task(number, ids) for number in range(WORKERS)], folder, self._chance)

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        wanted = [NewTopic(name, PARTITIONS, self._brokers) for name in (SOURCE, TARGET)]
        for future in admin.create_topics(wanted).values():
            future.result(60)

    def _task(self, number: int, ids: str) -> Task:
        """The first worker is a static member, the others are not."""
        return Task(
            servers=self._servers,
            group=GROUP,
            source=SOURCE,
            target=TARGET,
            name=f"worker-{number}",
            ids=ids,
            is_static=number == 0,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )

    def run(self, kills: int, records: int, seconds: float, *, quiet: bool) -> Result:
        self._pool.start()
        try:
            self._input.start()
            while self._result.kills.total() < kills:
                time.sleep(self._chance.uniform(0, 2 * seconds / max(1, kills)))
                what = self._strike()
                if self._chance.random() < PROGRESS_SHARE:
                    self._output.wait_for_more(END_TIMEOUT_S)
                if not quiet:
                    print(
                        f"{self._result.kills.total():3} of {kills}: {what:20} {self._input.count:7} in, "
                        f"{self._output.count:7} out",
                        flush=True,
                    )
                assert not self._output.problems, self._output.problems[:5]
            self._input.finish(records)
            self._output.wait_for(self._input.counts, END_TIMEOUT_S)
        finally:
            self._pool.stop()
            self._output.stop()
        self._verify()
        return self._result

    def _strike(self) -> str:
        kind = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "pause worker":
            self._result.pauses += 1
            return "paused " + self._pool.pause(self._chance.uniform(1.0, 2 * SESSION_TIMEOUT_MS / 1000))
        self._result.kills[kind.removeprefix("kill ").removeprefix("all ").removesuffix("s")] += 1
        if kind == "kill worker":
            return "killed " + self._pool.kill()
        everybody = list(range(1, self._brokers + 1))
        victims = everybody if kind == "kill all brokers" else [self._chance.choice(everybody)]
        self._kill_brokers(victims)
        return f"killed broker {victims if len(victims) > 1 else victims[0]}"

    def _kill_brokers(self, victims: list[int]) -> None:
        for node_id in victims:
            self._cluster.kill(node_id)
        time.sleep(self._chance.choice((0.0, 0.5, 2.0)))
        for node_id in victims:
            self._cluster.start(node_id)
        for node_id in victims:
            self._cluster.wait_for(node_id, clusters.START_TIMEOUT_S)

    def _verify(self) -> None:
        assert not self._output.problems, self._output.problems[:5]
        self._result.stable_s = wait_until_stable(self._servers, [TARGET], HANG_TIMEOUT_S)
        for partition, messages in read_committed(self._servers, TARGET).items():
            found = [int(message.value() or b"-1") for message in messages]
            expected = list(range(self._input.counts[partition]))
            assert found == expected, f"partition {partition}: {len(found)} records, {len(expected)} are due"
        self._check_offsets()
        self._result.records = self._input.count
        self._result.longest_gap_s = self._output.longest_gap_s
        self._result.complaints = self._pool.complaints()
        assert not self._result.complaints["traceback"], "a worker ended with a traceback"

    def _check_offsets(self) -> None:
        with Client(self._servers) as client:
            held = group_client.committed_offsets(client, GROUP)
        offsets = [held[TopicPartition(SOURCE, number)].offset for number in range(PARTITIONS)]
        assert offsets == self._input.counts, f"committed {offsets} of {self._input.counts}"


def run(
    *,
    brokers: int,
    kills: int,
    records: int,
    seconds: float,
    seed: int,
    ids: str = "worker",
    system: str = "barnabas",
    quiet: bool = False,
) -> Result:
    with tempfile.TemporaryDirectory(prefix="transactions-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        cluster = clusters.create(system, folder, brokers, SETTINGS)
        with clusters.running(cluster, brokers):
            return Run(cluster, brokers, folder, ids, seed).run(kills, records, seconds, quiet=quiet)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, help="without broken brokers; default: two for each kill")
    parser.add_argument("--ids", choices=["worker", "partition"], default="worker", help="transactional ids")
    parser.add_argument("--system", choices=clusters.SYSTEMS, default="barnabas")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    clusters.interrupt_on_sigterm()
    print(f"seed {options.seed}", flush=True)
    began_s = time.monotonic()
    result = run(
        brokers=options.brokers,
        kills=options.kills,
        records=options.records,
        seconds=2.0 * options.kills if options.seconds is None else options.seconds,
        seed=options.seed,
        ids=options.ids,
        system=options.system,
    )
    print(f"workers: {dict(result.complaints)}")
    print(
        f"{options.system}, {options.brokers} broker(s), ids by {options.ids}: {result.records} records each once, "
        f"{dict(result.kills)} kills, {result.pauses} pauses, longest gap {result.longest_gap_s:.1f} s, stable "
        f"{result.stable_s:.1f} s after the end, {time.monotonic() - began_s:.0f} s"
    )


if __name__ == "__main__":
    main()
