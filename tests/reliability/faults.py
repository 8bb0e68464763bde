"""Real faults against three real processes with stock clients: ``make faults MINUTES=30``.

Each round starts a new cluster and load, lets it suffer a series of faults drawn with a seed, and checks the history of
the clients, the replicas' files and the nodes' logs. As root the brokers live in network namespaces of their own and
packets are dropped by iptables; else a proxy cuts the links.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.reliability import fault_hosts, fault_kinds, fault_plot, fault_power, fault_watch
from tests.reliability.fault_hosts import Hosts, NamespaceHosts, ProxyHosts
from tests.reliability.fault_plot import Outcome
from tests.reliability.fault_round import Result, Round


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    print(f"seed {options.seed}, hosts {options.hosts}", flush=True)
    with _hosts(options.hosts) as hosts:
        problems = fault_watch.run(hosts, options.minutes, options.busy) if options.watch else _rounds(hosts, options)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    sys.exit(1 if problems else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--hosts", choices=["namespaces", "proxy"], help="default: namespaces where that is possible")
    parser.add_argument("--faults", type=int, default=28, help="of one round")
    parser.add_argument("--kind", action="append", help="only these kinds, as in the table before the comma")
    parser.add_argument("--target", choices=fault_kinds.TARGETS[1:], help="only this target")
    parser.add_argument("--output", type=Path, help="folder for histories, logs, figures and the plot")
    parser.add_argument("--power", action="store_true", help="flushed topics on ext4 images, and power cuts too (root)")
    parser.add_argument("--without-flush", action="store_true", help="with --power: to see that losses are found")
    parser.add_argument("--watch", action="store_true", help="no faults: report elections and fenced brokers")
    parser.add_argument("--busy", type=int, default=0, help="with --watch: busy loops beside the cluster")
    options = parser.parse_args()
    reason = fault_hosts.unavailable()
    if options.hosts == "namespaces" and reason is not None:
        parser.error(reason)
    if options.power and (reason := fault_power.unavailable()) is not None:
        parser.error(reason)
    options.hosts = options.hosts or ("proxy" if reason else "namespaces")
    return options


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Once: what is torn down then must not be interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def _hosts(name: str) -> Iterator[Hosts]:
    hosts: Hosts = NamespaceHosts() if name == "namespaces" else ProxyHosts()
    try:
        yield hosts
    finally:
        hosts.close()


def _rounds(hosts: Hosts, options: argparse.Namespace) -> list[str]:
    end_s = time.monotonic() + 60 * options.minutes
    outcomes: list[Outcome] = []
    problems: list[str] = []
    acknowledged = number = 0
    while time.monotonic() < end_s:
        number += 1
        output = None if options.output is None else options.output / f"round-{number}"
        print(f"round {number}", flush=True)
        with tempfile.TemporaryDirectory(prefix="barnabas-faults-", ignore_cleanup_errors=True) as folder:
            result = _round(hosts, Path(folder), options, number, end_s, output)
        outcomes += result.outcomes
        problems += [f"round {number}: {problem}" for problem in result.problems]
        acknowledged += result.acknowledged
        if options.output is not None:
            _write(options.output, outcomes)
    print(f"{len(outcomes)} faults, {acknowledged} records acknowledged, {len(problems)} problems")
    print(fault_plot.table(outcomes))
    return problems


def _round(
    hosts: Hosts, folder: Path, options: argparse.Namespace, number: int, end_s: float, output: Path | None
) -> Result:
    chance = random.Random(f"{options.seed}-{number}")
    faults = fault_kinds.draw(chance, power=options.power, kinds=options.kind, target=options.target)

    def goes_on(done: int) -> bool:
        return done < options.faults and time.monotonic() < end_s

    with fault_power.disks(folder, options.power) as make_injector:
        one = Round(
            hosts,
            folder,
            chance,
            settings=fault_power.SETTINGS if options.power and not options.without_flush else {},
            say=lambda text: print(text, flush=True),
            make_injector=make_injector,
        )
        return one.run(faults, goes_on, output)


def _write(folder: Path, outcomes: list[Outcome]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fault_plot.write(outcomes, folder / "faults.jsonl")
    fault_plot.plot(outcomes, folder / "faults.png")


if __name__ == "__main__":
    main()
