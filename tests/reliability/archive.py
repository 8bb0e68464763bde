"""kill -9 during an archive: ``python -m tests.reliability.archive --records 2000000 --kills 10 [--format iceberg]``.

``barnabas pipeline archive`` brings a topic into a table while its driver (the Java and the Python process together) or
one of Spark's Python workers is killed at random moments; once, its checkpoint is thrown away as well, unless the
target is a Parquet folder, which needs it; with ``--outage 60`` the broker is away for a minute in the middle. Whatever
was killed when: in the end the table has exactly the records of the topic, ``verify`` proves it, and readers that are
not Spark see the same.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from barnabas.client.wire.data import produce
from barnabas.model.ids import TopicPartition
from barnabas.spark.tables.base import Table
from barnabas.spark.tables.formats import open_readable, table_options
from barnabas.spark.verify import verify
from barnabas.wire.records import Record, encode_batch
from tests.reliability.process import BrokerProcess
from tests.unit.spark.tables_kit import read_by_others

TOPIC = "orders"
PARTITIONS = 3
BATCH = 1000
ROUND_TIMEOUT_S = 300.0
FORMATS = ("delta", "iceberg", "parquet")


class Result(NamedTuple):
    rows: int
    commits: int
    driver_kills: int
    worker_kills: int
    readers: tuple[str, ...]


def fill(servers: str, records: int) -> int:
    """So many records over the partitions, rounded to whole batches; how many there are."""
    each = max(1, records // PARTITIONS // BATCH)
    with Client(servers) as client:
        create_topic(client, TOPIC, partitions=PARTITIONS)
        for number in range(each):
            now_ms = int(time.time() * 1000)
            for partition in range(PARTITIONS):
                made = [
                    Record(i, now_ms, b"key-%d" % (i % 97), b"%d-%d " % (partition, number * BATCH + i) + b"x" * 80)
                    for i in range(BATCH)
                ]
                produce(client, {TopicPartition(TOPIC, partition): encode_batch(made)})
    return each * BATCH * PARTITIONS


class Job:
    """The archive as a process of its own, with all that it starts."""

    def __init__(self, servers: str, table: str, checkpoint: Path, per_batch: int) -> None:
        self.checkpoint = checkpoint
        self._command = [sys.executable, "-m", "barnabas", "pipeline", "archive", TOPIC, "--to", table]
        # A task that is lost with its worker is tried again, as on a cluster.
        self._command += ["--master", "local[2,4]", "--checkpoint", str(checkpoint), "-b", servers]
        self._command += ["--max-per-batch", str(per_batch)]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def kill_worker(self, chance: random.Random) -> bool:
        """One of the Python processes that Spark has forked; False where there is none at the moment."""
        assert self._process is not None
        workers = [pid for pid in _group(self._process.pid) if _is_worker(pid)]
        if not workers:
            return False
        os.kill(chance.choice(workers), signal.SIGKILL)
        return True

    def finish(self) -> str:
        """What it said; raises where it failed."""
        assert self._process is not None
        output, _ = self._process.communicate(timeout=ROUND_TIMEOUT_S)
        if self._process.returncode:
            raise RuntimeError(f"the archive failed: {output[-2000:]}")
        return output


def _group(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == leader:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue
    return found


def _is_worker(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def run(records: int, kills: int, table_format: str, seed: int, *, outage_s: float = 0, quiet: bool = False) -> Result:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="barnabas-archive-") as folder:
        root = Path(folder)
        table = f"{table_format}:{root / 'table'}" + ("#shop.orders" if table_format == "iceberg" else "")
        with BrokerProcess(root / "broker") as broker:
            count = fill(broker.bootstrap_servers, records)
            job = Job(broker.bootstrap_servers, table, root / "checkpoint", max(count // (3 * max(kills, 1)), BATCH))
            try:
                if outage_s:
                    _outage(job, table, broker, outage_s)
                drivers, workers = _torment(job, table, kills, chance, quiet)
            finally:
                if job.is_running:
                    job.kill()
            return _check(broker.bootstrap_servers, table, root, count, drivers, workers)


def _outage(job: Job, table: str, broker: BrokerProcess, outage_s: float) -> None:
    """The broker goes in the middle of the work, and is back after a while: the job is to wait for it."""
    job.start()
    _until_it_writes(job, table)
    broker.kill()
    time.sleep(outage_s)
    broker.start()
    assert job.is_running, f"the job did not wait for the broker: {job.finish()}"


def _torment(job: Job, table: str, kills: int, chance: random.Random, quiet: bool) -> tuple[int, int]:
    """Kills until there have been enough, and lets the job end. Drivers and workers that were killed."""
    drivers = workers = 0
    thrown_away = table.startswith("parquet:")
    if not job.is_running:
        job.start()
    while drivers + workers < kills:
        _until_it_writes(job, table)
        time.sleep(chance.uniform(0, 2.0))
        if not job.is_running:
            if drivers + workers == 0:
                raise RuntimeError(f"the archive ended before anything was killed: {job.finish()}")
            job.start()  # a killed worker may have ended the query, or it was done: again from where it is
            continue
        if chance.random() < 0.5 and job.kill_worker(chance):
            workers += 1
            what = "a worker"
        else:
            job.kill()
            drivers += 1
            what = "the driver"
            if not thrown_away and drivers + workers >= kills // 2:
                shutil.rmtree(job.checkpoint, ignore_errors=True)
                thrown_away = True
                what += ", and its checkpoint is gone"
            job.start()
        if not quiet:
            print(f"killed {drivers + workers} of {kills}: {what}", flush=True)
    try:
        job.finish()
    except RuntimeError:
        job.start()  # the last kill may have ended it
        job.finish()
    return drivers, workers


def _until_it_writes(job: Job, table: str) -> None:
    """Until there is a file in the table's folder that was not there before."""
    folder = Path(table.partition(":")[2].partition("#")[0])
    before = sum(1 for _ in folder.rglob("*.parquet"))
    deadline = time.monotonic() + ROUND_TIMEOUT_S
    while job.is_running and sum(1 for _ in folder.rglob("*.parquet")) <= before and time.monotonic() < deadline:
        time.sleep(0.05)


def _check(servers: str, table: str, root: Path, count: int, drivers: int, workers: int) -> Result:
    with open_readable(table_options(table)) as opened, Client(servers) as client:
        report = verify(opened, client, TOPIC, whole_topic=True)
        assert report.ok, report.problems
        assert sum(partition.rows for partition in report.partitions) == count
        expected = sorted(list(range(count // PARTITIONS)) * PARTITIONS)
        seen = read_by_others(opened, root) if isinstance(opened, Table) else {}
        for reader, offsets in seen.items():
            assert offsets == expected, f"{reader} sees {len(offsets)} rows of {count}"
        return Result(count, opened.state().commits, drivers, workers, tuple(seen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--format", choices=FORMATS, default="delta")
    parser.add_argument("--outage", type=float, default=0, help="seconds that the broker is away in the middle")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    done = run(options.records, options.kills, options.format, options.seed, outage_s=options.outage)
    print(
        f"{options.format}: {done.rows:,} records in {done.commits} commits, once each, {done.driver_kills} kills "
        f"of the driver and {done.worker_kills} of a worker later; also seen so by {', '.join(done.readers)}"
    )


if __name__ == "__main__":
    main()
