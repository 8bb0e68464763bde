"""Races between flush, roll, retention, DeleteRecords, compaction and topic deletion: ``make races SECONDS=60``.

Half of the time simulated, seed after seed, where every order of events can be had and repeated; half with a real
broker, whose segments live for milliseconds while clients produce, delete records and recreate topics.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from contextlib import suppress

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.reliability.process import BrokerProcess
from tests.simulation.storage_races import run_seed

SETTINGS = [
    "log.retention.check.interval.ms=300",
    "log.segment.delete.delay.ms=0",
    "log.flush.offset.checkpoint.interval.ms=500",
    "log.cleaner.backoff.ms=50",
]
TOPIC = {
    "segment.ms": "20",
    "segment.bytes": "1048576",
    "retention.bytes": "3000",
    "file.delete.delay.ms": "0",
    "min.cleanable.dirty.ratio": "0.01",
}
POLICIES = ("delete", "compact", "compact,delete")


def simulate(seconds: float, first_seed: int) -> int:
    """Returns how many seeds were run; raises Violation with the seed that failed."""
    deadline = time.monotonic() + seconds
    seed = first_seed
    while time.monotonic() < deadline:
        run_seed(seed)
        seed += 1
    return seed - first_seed


def run(seconds: float, seed: int, *arguments: str) -> int:
    """Returns how many messages a real broker acknowledged; raises where it has ended by itself."""
    with tempfile.TemporaryDirectory(prefix="barnabas-races-") as folder:
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        with BrokerProcess(folder, *settings, *arguments) as broker:
            load = _Load(broker.bootstrap_servers, seed)
            load.run(time.monotonic() + seconds, broker)
            assert broker.is_alive, f"the broker has ended: {broker.output}"
            assert broker.stop() == 0, broker.output
            return load.acknowledged


class _Load:
    def __init__(self, servers: str, seed: int) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._topics = [f"race-{number}" for number in range(4)]
        self._done = threading.Event()
        self.acknowledged = 0

    def run(self, deadline: float, broker: BrokerProcess) -> None:
        for topic in self._topics:
            self._create(topic)
        producing = threading.Thread(target=self._produce)
        producing.start()
        try:
            while time.monotonic() < deadline and broker.is_alive:
                self._disturb()
        finally:
            self._done.set()
            producing.join()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 1, "message.timeout.ms": 5000})

        def delivered(error: object, _message: object) -> None:
            self.acknowledged += error is None

        number = 0
        while not self._done.is_set():
            for topic in self._topics:
                with suppress(BufferError, KafkaException):
                    producer.produce(topic, key=str(number % 50), value=b"v" * 200, on_delivery=delivered)
            number += 1
            producer.poll(0.001)
        producer.flush(10)

    def _disturb(self) -> None:
        topic = self._random.choice(self._topics)
        with suppress(KafkaException):
            if self._random.random() < 0.2:
                self._admin.delete_topics([topic])[topic].result(10)
                self._create(topic)
            else:
                low_end = TopicPartition(topic, 0, -1)
                for future in self._admin.delete_records([low_end]).values():
                    future.result(10)
        self._done.wait(self._random.uniform(0.01, 0.1))

    def _create(self, topic: str) -> None:
        config = {**TOPIC, "cleanup.policy": self._random.choice(POLICIES)}
        with suppress(KafkaException):
            self._admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    count = simulate(options.seconds / 2, options.seed)
    print(f"simulated: {count} seeds, no record lost, no folder offline", flush=True)
    for arguments in ((), ("--durable",)):
        acknowledged = run(options.seconds / 4, options.seed, *arguments)
        print(f"real broker {' '.join(arguments) or 'as it is'}: alive after {acknowledged} messages", flush=True)


if __name__ == "__main__":
    main()
