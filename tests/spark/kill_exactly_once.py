"""A streaming query with the exactly-once sink while its driver and its Python workers are killed at random.

    python -m tests.spark.kill_exactly_once --rows 1000000 --kills 10

The driver is PySpark's process and its Java; a query that ends because of a kill is started again with its checkpoint.
At the end a read_committed reader must see every row once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from barnabas.client.arrow.table import read
from barnabas.client.wire import Client
from barnabas.client.wire.admin import LATEST, create_topic, list_offsets
from barnabas.client.wire.transactions import ONGOING, TransactionFilter, list_transactions
from barnabas.model.ids import TopicPartition
from barnabas.testing import EmbeddedBroker

SOURCE, TARGET = "in", "out"
PARTITIONS = 4
BATCHES_PER_KILL = 6
START_TIMEOUT_S = 180.0
DRIVER, WORKER = "driver", "worker"
KINDS = (DRIVER, WORKER)


class Result(NamedTuple):
    rows: int
    kills: dict[str, int]
    starts: int
    seconds: float
    seen: int
    """By a read_committed reader."""
    missing: int
    repeated: int
    aborted: int
    """Rows of attempts that do not count."""

    @property
    def is_exact(self) -> bool:
        return (self.seen, self.missing, self.repeated) == (self.rows, 0, 0)


def run_query(servers: str, folder: str, rows_per_batch: int) -> None:
    """What is killed. Ends when the source has been read to its end."""
    from barnabas.spark import session

    config = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": f"{folder}/local",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    spark = session("kill", master="local[2,8]", config=config)  # a task may fail seven times
    options = {"kafka.bootstrap.servers": servers, "kafka.transaction.timeout.ms": "60000"}
    rows = (
        spark.readStream.format("barnabas")
        .options(subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger=rows_per_batch)
        .option("kafka.bootstrap.servers", servers)
        .load()
    )
    writer = rows.select("key", "value").writeStream.format("barnabas").options(**options)
    writer = writer.options(topic=TARGET, deliveryMode="exactly-once", checkpointLocation=f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


class Query:
    """The process of the query, started again where it has died."""

    def __init__(self, servers: str, folder: Path, rows_per_batch: int) -> None:
        self._command = [sys.executable, "-m", "tests.spark.kill_exactly_once", "--query", servers, str(folder)]
        self._command += [str(rows_per_batch)]
        self._log = folder / "query.log"
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def is_done(self) -> bool:
        """Starts it again where it ended too early."""
        code = self._process.poll()
        if code == 0:
            return True
        if code is not None:
            self._start()
        return False

    def kill(self, kind: str) -> bool:
        """False where no such process is there."""
        children = _descendants(self._process.pid)
        workers = [pid for pid in children if _is_worker(pid, children)]
        java = [pid for pid in children if _command_line(pid)[0].endswith("java")]
        chosen = [self._process.pid, *java] if kind == DRIVER else random.sample(workers, min(1, len(workers)))
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(chosen)

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for pid in [self._process.pid, *_descendants(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return [""]


def _is_worker(pid: int, family: list[int]) -> bool:
    """A child of the process that forks Spark's workers."""
    with suppress(OSError):
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent in family and any("pyspark.daemon" in word for word in _command_line(parent))
    return False


def fill(servers: str, rows: int) -> None:
    with Client(servers) as client:
        create_topic(client, SOURCE, partitions=PARTITIONS)
        create_topic(client, TARGET, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(rows):
        while True:
            try:
                producer.produce(SOURCE, b"%d" % number, b"%d" % (number % 1000), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def stable_offsets(client: Client) -> int:
    places = [TopicPartition(TARGET, number) for number in range(PARTITIONS)]
    found = list_offsets(client, dict.fromkeys(places, LATEST), read_committed=True)
    return sum(each.offset for each in found.values())


def wait_for_a_transaction(client: Client, query: Query) -> None:
    """Between batches and while Spark plans, there is none to be left behind."""
    while not list_transactions(client, TransactionFilter(states=[ONGOING])) and not query.is_done():
        time.sleep(0.005)


def run(rows: int, kills: int, seed: int, folder: Path) -> Result:
    random.seed(seed)
    done: Counter[str] = Counter()
    kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
    random.shuffle(kinds)
    with EmbeddedBroker(data=str(folder / "data")) as broker, Client(broker.bootstrap_servers) as client:
        fill(broker.bootstrap_servers, rows)
        began = time.monotonic()
        query = Query(broker.bootstrap_servers, folder, max(rows // (kills * BATCHES_PER_KILL), 1))
        try:
            for number, kind in enumerate(kinds):
                _wait_for(client, query, int(rows * (number + random.random()) / (kills + 1)))
                if number % 4 < 3:
                    wait_for_a_transaction(client, query)
                    time.sleep(random.random() * 0.2)
                else:
                    time.sleep(random.random() * 2)
                while not query.kill(kind) and not query.is_done():
                    time.sleep(0.01)
                done[kind] += 1
                print(f"{time.monotonic() - began:5.0f} s  {kind} killed", file=sys.stderr, flush=True)
            _wait_for(client, query, None)
            seconds = time.monotonic() - began
        finally:
            query.close()
        return _result(broker.bootstrap_servers, rows, dict(done), query.starts, seconds)


def _wait_for(client: Client, query: Query, offsets: int | None) -> None:
    """Until so much of the target is stable, or for None until the query has ended."""
    moved_at, last = time.monotonic(), -1
    while not query.is_done():
        found = stable_offsets(client)
        if offsets is not None and found > offsets:
            return
        if found != last:
            moved_at, last = time.monotonic(), found
        if time.monotonic() - moved_at > START_TIMEOUT_S:
            raise TimeoutError(f"nothing was committed for {START_TIMEOUT_S:.0f} s:\n{query.log()}")
        time.sleep(0.05)
    if offsets is not None:
        raise RuntimeError("the query ended before all kills: give it more rows")


def _result(servers: str, rows: int, kills: dict[str, int], starts: int, seconds: float) -> Result:
    values = read(TARGET, columns=["value"], servers=servers)["value"]
    numbers = values.cast(pa.string()).cast(pa.int64())
    distinct = pc.count_distinct(numbers).as_py()
    written = read(TARGET, columns=["offset"], servers=servers, isolation="read_uncommitted").num_rows
    return Result(
        rows=rows,
        kills=kills,
        starts=starts,
        seconds=round(seconds, 1),
        seen=len(numbers),
        missing=rows - distinct,
        repeated=len(numbers) - distinct,
        aborted=written - len(numbers),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--query", nargs=3, metavar=("SERVERS", "FOLDER", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.query:
        run_query(options.query[0], options.query[1], int(options.query[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = run(options.rows, options.kills, options.seed, Path(folder))
    print(json.dumps({"seed": options.seed, **result._asdict()}))
    sys.exit(0 if result.is_exact else 1)


if __name__ == "__main__":
    main()
