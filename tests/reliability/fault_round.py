"""One round: a new cluster of three processes, its load, some faults one after the other, and the checks at the end."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.app.local_cluster import LocalCluster
from tests.reliability import fault_replicas
from tests.reliability.fault_history import Ack, History, anomalies
from tests.reliability.fault_hosts import BROKERS, Hosts
from tests.reliability.fault_kinds import Fault, Injector
from tests.reliability.fault_load import PARTITIONS, PRODUCERS, TOPIC, Load, read_log
from tests.reliability.fault_plot import Outcome, longest_gap
from tests.reliability.fault_view import ClusterView

HEALTHY_TIMEOUT_S = 60.0
FLOW_TIMEOUT_S = 120.0
START_TIMEOUT_S = 60.0
LOOK_S = 0.1
REST_S = (0.5, 2.0)
"""Between two faults, when all is well."""
READ_AHEAD_S = 30.0


@dataclass
class Result:
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0


class Round:
    def __init__(
        self,
        hosts: Hosts,
        folder: Path,
        chance: random.Random,
        *,
        settings: dict[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
        make_injector: Callable[[LocalCluster, Hosts, ClusterView], Injector] = Injector,
    ) -> None:
        self._hosts = hosts
        self._chance = chance
        self._say = say
        self._result = Result()
        self.cluster = hosts.create(folder, settings or {})
        self._view = ClusterView(self.cluster)
        self._injector = make_injector(self.cluster, hosts, self._view)
        self._load = Load(self.cluster.bootstrap_servers)

    def run(self, faults: Iterator[Fault], goes_on: Callable[[int], bool], output: Path | None = None) -> Result:
        """``goes_on`` is asked before each fault, with the number of those that are over."""
        try:
            for node in BROKERS:
                self._hosts.start(self.cluster, node)
            for node in BROKERS:
                self.cluster.wait_for(node, START_TIMEOUT_S)
            self._load.start()
            self._settle("the start", time.monotonic())
            while goes_on(len(self._result.outcomes)):
                self._suffer(next(faults))
            self._finish()
        finally:
            self._hosts.heal()
            for node in BROKERS:
                self.cluster.kill(node)
            if output is not None:
                self._keep(output)
        return self._result

    # One fault

    def _suffer(self, fault: Fault) -> None:
        victim, controller = self._injector.victim_of(fault), self._view.controller()
        began_s = time.monotonic()
        self._injector.carry_out(fault, victim)
        ended_s = time.monotonic()
        where = f"{fault.label} (node {victim}, {fault.target})"
        healthy_s = self._settle(where, ended_s)
        time.sleep(self._chance.uniform(*REST_S))
        outcome = Outcome(
            label=fault.label,
            target=fault.target,
            victim=victim,
            was_controller=victim == controller,
            duration_s=fault.duration_s,
            began_s=began_s,
            ended_s=ended_s,
            healthy_s=healthy_s,
            **_figures(self._load.history, began_s, time.monotonic()),
        )
        self._result.outcomes.append(outcome)
        self._say(
            f"{len(self._result.outcomes):3} {where:52} for {fault.duration_s:4.1f} s: gap {outcome.gap_s:5.2f} s, "
            f"a producer's {outcome.producer_gap_s:5.2f} s, read delay {outcome.read_delay_s:5.2f} s, "
            f"healthy after {'—' if healthy_s is None else f'{healthy_s:.1f} s'}"
        )

    def _settle(self, after: str, since_s: float) -> float | None:
        """Waits until the cluster is healthy and every client makes progress; how long the cluster took."""
        problem = self._view.wait_until_healthy(HEALTHY_TIMEOUT_S)
        healthy_s = None if problem else time.monotonic() - since_s
        if problem:
            self._problem(f"not healthy {HEALTHY_TIMEOUT_S:.0f} s after {after}: {problem}")
        stuck = self._wait_for_flow(time.monotonic())
        if stuck:
            self._problem(f"clients make no progress {FLOW_TIMEOUT_S:.0f} s after {after}: {stuck}")
        return healthy_s

    def _wait_for_flow(self, since_s: float) -> str | None:
        deadline_s = time.monotonic() + FLOW_TIMEOUT_S
        wanted = {(producer, partition) for producer in range(PRODUCERS) for partition in range(PARTITIONS)}
        while True:
            fresh = {(ack.value.producer, ack.partition) for ack in _acks_since(self._load.history, since_s)}
            if wanted <= fresh and self._load.is_caught_up():
                return None
            if time.monotonic() >= deadline_s:
                silent = sorted(wanted - fresh)
                return f"no acknowledgement for (producer, partition) {silent}" if silent else "a reader lags"
            time.sleep(LOOK_S)

    def _problem(self, text: str) -> None:
        self._result.problems.append(text)
        self._say(f"PROBLEM: {text}")

    # The end

    def _finish(self) -> None:
        self._load.finish()
        problem = self._view.wait_until_healthy(HEALTHY_TIMEOUT_S)
        if problem:
            self._problem(f"not healthy at the end: {problem}")
        history = self._load.history
        log = read_log(self.cluster.bootstrap_servers)
        missing = set(history.created_topics) - set(self._view.topics())
        self.cluster.stop_all()
        ends = {partition: records[-1][0] + 1 if records else 0 for partition, records in log.items()}
        for text in (
            *anomalies(history, log),
            *(f"lost: topic {name}" for name in sorted(missing)),
            *fault_replicas.differences(self.cluster, TOPIC, PARTITIONS, ends),
            *fault_replicas.tracebacks(self.cluster),
            *self._failed_records(),
        ):
            self._problem(text)
        self._result.acknowledged = len(history.acks)

    def _failed_records(self) -> Iterator[str]:
        """A stock producer tries for 300 s, far longer than any fault here."""
        failures = self._load.history.failures
        if failures:
            yield f"{len(failures)} records failed, the first: {failures[0]}"

    def _keep(self, output: Path) -> None:
        output.mkdir(parents=True, exist_ok=True)
        self._load.history.write(output / "history.jsonl.gz")
        for node in BROKERS:
            if self.cluster.log_path(node).exists():
                shutil.copy(self.cluster.log_path(node), output)
            metadata = Path(f"node-{node}") / "__cluster_metadata-0"
            if (self.cluster.folder / metadata).exists():
                shutil.copytree(self.cluster.folder / metadata, output / metadata, dirs_exist_ok=True)


def _acks_since(history: History, since_s: float) -> Iterator[Ack]:
    """The callbacks of several producers append: times are in order but for a moment."""
    for position in range(len(history.acks) - 1, -1, -1):
        if history.acks[position].time_s < since_s - 1:
            return
        if history.acks[position].time_s >= since_s:
            yield history.acks[position]


def _figures(history: History, began_s: float, ended_s: float) -> dict[str, float]:
    acks = list(_acks_since(history, began_s - READ_AHEAD_S))
    partitions = {each: sorted(ack.time_s for ack in acks if ack.partition == each) for each in range(PARTITIONS)}
    pairs = {
        (producer, partition): sorted(
            ack.time_s for ack in acks if ack.partition == partition and ack.value.producer == producer
        )
        for producer in range(PRODUCERS)
        for partition in range(PARTITIONS)
    }
    return {
        "gap_s": max(longest_gap(times, began_s, ended_s) for times in partitions.values()),
        "producer_gap_s": max(longest_gap(times, began_s, ended_s) for times in pairs.values()),
        "read_delay_s": _read_delay(history, acks, began_s),
    }


def _read_delay(history: History, acks: list[Ack], began_s: float) -> float:
    acknowledged_s = {(ack.partition, ack.offset): ack.time_s for ack in acks if ack.time_s >= began_s}
    delay_s = 0.0
    for polls in list(history.readers.values()):
        for position in range(len(polls) - 1, -1, -1):
            poll = polls[position]
            if poll.time_s < began_s:
                break
            time_s = acknowledged_s.get((poll.partition, poll.offset))
            if time_s is not None:
                delay_s = max(delay_s, poll.time_s - time_s)
    return delay_s
