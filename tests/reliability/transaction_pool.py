"""A pool of workers that are killed, paused and started again, the input that they read and what comes out."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.reliability.transaction_worker import Task

STOP_TIMEOUT_S = 60.0
FLUSH_TIMEOUT_S = 240.0
LOOK_S = 0.05


def start_worker(task: Task, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.reliability.transaction_worker", json.dumps(task._asdict())]
    with output.open("ab") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)


class Pool:
    """Keeps its workers up: one that has given up is started again at once, one that was killed a moment later."""

    def __init__(self, tasks: list[Task], folder: Path, chance: random.Random) -> None:
        self._tasks = tasks
        self._folder = folder
        self._chance = chance
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._due_s: dict[int, float] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, daemon=True)
        self._stalls = 0

    def start(self) -> None:
        for number in range(len(self._tasks)):
            self._start(number)
        self._thread.start()

    def _start(self, number: int) -> None:
        self._processes[number] = start_worker(self._tasks[number], self._output(number))

    def _output(self, number: int) -> Path:
        return self._folder / f"worker-{number}.log"

    def _keep_up(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with self._lock:
                for number, process in self._processes.items():
                    if process.poll() is not None and time.monotonic() >= self._due_s.get(number, 0):
                        self._stalls += process.returncode == -signal.SIGALRM
                        self._start(number)

    def kill(self) -> str:
        number = self._chance.randrange(len(self._tasks))
        with self._lock:
            self._due_s[number] = time.monotonic() + self._chance.choice((0.0, 0.3, 4.0))
            self._processes[number].kill()
            self._processes[number].wait()
        return f"worker {number}"

    def pause(self, seconds: float) -> str:
        """A worker that sleeps beyond its session comes back as a zombie: its transaction must not count."""
        number = self._chance.randrange(len(self._tasks))
        process = self._processes[number]
        try:
            process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)
        return f"worker {number}"

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def complaints(self) -> Counter[str]:
        """What workers aborted for or gave up for, and how often. Tracebacks are complaints too."""
        found: Counter[str] = Counter({"stalled": self._stalls} if self._stalls else {})
        for number in range(len(self._tasks)):
            for line in self._output(number).read_text(errors="replace").splitlines():
                if line.startswith("{"):
                    entry = json.loads(line)
                    found[f"{entry['what']}: {entry['name']}"] += 1
                elif line.startswith("Traceback"):
                    found["traceback"] += 1
        return found


class Input:
    """Each partition gets the numbers 0, 1, 2 … from one idempotent producer."""

    def __init__(self, servers: str, topic: str, partitions: int, rate: float) -> None:
        self._topic = topic
        self._rate = rate
        self.counts = [0] * partitions
        self._failures: list[str] = []
        self._stopping = threading.Event()
        settings = {"enable.idempotence": True, "linger.ms": 1, "log_level": 0, "message.timeout.ms": 240_000}
        self._producer = Producer({"bootstrap.servers": servers, **settings})
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(len(self.counts) / self._rate):
            self._send_one_each()

    def _send_one_each(self) -> None:
        for partition, number in enumerate(self.counts):
            self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered)
            self.counts[partition] += 1
        self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    @property
    def count(self) -> int:
        return sum(self.counts)

    def finish(self, records: int) -> None:
        """Sends on at full speed until there are so many, and waits for all acknowledgements."""
        self._stopping.set()
        self._thread.join()
        while self.count < records:
            self._send_one_each()
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert left == 0, f"{left} records of the input were never acknowledged"
        assert not self._failures, f"records of the input failed: {self._failures[0]}"


class Output:
    """Reads committed records as they come: each partition must be 0, 1, 2 …"""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.counts = [0] * partitions
        self.problems: list[str] = []
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()
        self._stopping = threading.Event()
        settings = {"group.id": "live", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({"bootstrap.servers": servers, "log_level": 0, "fetch.wait.max.ms": 50, **settings})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    self._take(message.partition(), int(message.value()), message.offset())
        self._consumer.close()

    def _take(self, partition: int, number: int, offset: int) -> None:
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
        self._last_s = now_s
        if number != self.counts[partition]:
            self.problems.append(
                f"partition {partition}, offset {offset}: {number} where {self.counts[partition]} is due"
            )
        self.counts[partition] = number + 1

    @property
    def count(self) -> int:
        return sum(self.counts)

    def wait_for(self, counts: list[int], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while self.counts != counts and not self.problems:
            assert time.monotonic() < deadline_s, f"not all comes out within {timeout_s:.0f} s: {self.counts}, {counts}"
            time.sleep(LOOK_S)

    def wait_for_more(self, timeout_s: float) -> None:
        before, deadline_s = self.count, time.monotonic() + timeout_s
        while self.count == before and not self.problems:
            assert time.monotonic() < deadline_s, f"nothing comes out for {timeout_s:.0f} s"
            time.sleep(LOOK_S)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
