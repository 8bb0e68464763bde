"""Kafka reads a folder that Barnabas wrote: ``python -m tests.reliability.dump`` (needs Java; Maven fetches Kafka).

A broker writes a folder with everything in it: all codecs, idempotent producers, several segments, deleted records,
groups, metadata with a snapshot; transactions are added through the storage, since no API makes them yet. Then Kafka's
own DumpLogSegments decodes every file and must complain of nothing, and Kafka starts on it and serves its records.
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from bench.systems import answers, free_port, libraries, unavailable
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = ("metadata.log.max.record.bytes.between.snapshots=20000", "log.index.interval.bytes=2000")
SEGMENT_BYTES = 1 << 20
MESSAGES = 6000
TRANSACTIONS = 24

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|not found|out of order|corrupt|invalid|error|exception|could not|isvalid: false|^Found ",
    re.IGNORECASE,
)


class Complaint(AssertionError):
    """Kafka does not like what it reads."""


# Writing


def make_folder(folder: Path) -> dict[str, int]:
    """Writes the data folder; returns how many records each partition has, by topic-partition."""
    with BrokerProcess(folder, *(word for setting in SETTINGS for word in ("--set", setting))) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        _make_topics(admin)
        for codec in CODECS:
            _produce(broker.bootstrap_servers, f"codec-{codec}", codec)
        for topic in ("recompressed", "append-time", "compacted"):
            _produce(broker.bootstrap_servers, topic, "lz4")
        _produce(broker.bootstrap_servers, "deleted-from", "none")
        for future in admin.delete_records([TopicPartition("deleted-from", 0, MESSAGES // 2)]).values():
            future.result(30)
        _commit(broker.bootstrap_servers, "codec-none")
        _run_transactions(broker.bootstrap_servers)
        _churn(admin)
        metadata = folder / "__cluster_metadata-0"
        wait_until(lambda: not (metadata / f"{0:020d}-{0:010d}.checkpoint").exists(), "a metadata snapshot is taken")
        if broker.stop() != 0:
            raise Complaint(broker.output)
    full = [*(f"codec-{codec}" for codec in CODECS), "recompressed", "append-time", "compacted"]
    counts = {f"{topic}-0": MESSAGES for topic in full}
    return counts | {"deleted-from-0": MESSAGES // 2, "transactions-0": 10 * TRANSACTIONS // 2}


def _make_topics(admin: AdminClient) -> None:
    small = {"segment.bytes": str(SEGMENT_BYTES)}
    topics = [NewTopic(f"codec-{codec}", 1, 1, config=small) for codec in CODECS]
    topics.append(NewTopic("recompressed", 1, 1, config={**small, "compression.type": "gzip"}))
    topics.append(NewTopic("append-time", 1, 1, config={**small, "message.timestamp.type": "LogAppendTime"}))
    topics.append(NewTopic("compacted", 1, 1, config={**small, "cleanup.policy": "compact"}))
    topics.append(NewTopic("deleted-from", 1, 1, config=small))
    topics.append(NewTopic("transactions", 1, 1))
    for future in admin.create_topics(topics).values():
        future.result(30)


def _produce(servers: str, topic: str, codec: str) -> None:
    """Keys, values, headers, nulls; about four segments before compression."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 200,
            "linger.ms": 5,
        }
    )
    for number in range(MESSAGES):
        value = None if number % 97 == 0 else os.urandom(300) + struct.pack(">q", number) * 50
        headers = [("number", str(number).encode()), ("empty", None)] if number % 3 == 0 else None
        producer.produce(topic, value, key=b"key-%d" % number, partition=0, headers=headers)
        if number % 500 == 0:
            producer.flush(30)
    if producer.flush(60):
        raise Complaint(f"{topic}: messages were not acknowledged")


def _commit(servers: str, topic: str) -> None:
    """A group with offsets, where groups are served."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                consumer.commit(asynchronous=False)
                return
        raise Complaint("a group could not read")
    finally:
        consumer.close()


def _churn(admin: AdminClient) -> None:
    """Every kind of change to the metadata, again and again until a snapshot is due."""
    for number in range(60):
        name = f"short-lived-{number}"
        for future in admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": str(1000 + number)})]).values():
            future.result(30)
        for future in admin.create_partitions([NewPartitions(name, 5)]).values():
            future.result(30)
        entry = ConfigEntry("retention.bytes", str(10**9), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        if number % 2:
            for future in admin.delete_topics([name]).values():
                future.result(30)


def _run_transactions(servers: str) -> None:
    """Committed and aborted ones in turn, from two producers at a time, with offsets; one more is left open."""
    common = {"bootstrap.servers": servers, "transaction.timeout.ms": 900_000, "log_level": 0}
    producers = [Producer({**common, "transactional.id": f"dump-{number}"}) for number in range(3)]
    for producer in producers:
        producer.init_transactions(30)
    reader = Consumer({"bootstrap.servers": servers, "group.id": "transactional", "log_level": 0})
    for number in range(0, TRANSACTIONS, 2):
        for producer in producers[:2]:
            producer.begin_transaction()
            for count in range(10):
                producer.produce("transactions", b"transactional %d %d" % (number, count), partition=0)
            producer.flush(30)
        offsets = [TopicPartition("codec-none", 0, number)]
        producers[0].send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30)
        producers[0].commit_transaction(30)
        producers[1].abort_transaction(30)
    reader.close()
    producers[2].begin_transaction()
    producers[2].produce("transactions", b"open", partition=0)
    producers[2].flush(30)


# Dumping


def dump_all(folder: Path) -> dict[str, int]:
    """Every file; returns how many of each kind were read. Raises Complaint."""
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in DUMPED]
    counts = {suffix: sum(file.suffix == suffix for file in files) for suffix in DUMPED}
    if missing := [suffix for suffix, count in counts.items() if not count]:
        raise Complaint(f"the folder has no {', '.join(missing)}")
    metadata = [file for file in files if _is_metadata(file)]
    decoded = [file for file in metadata if file.suffix in (".log", ".checkpoint")]
    offsets = [file for file in files if file.parent.name.startswith("__consumer_offsets") and file.suffix == ".log"]
    transactions = [
        file for file in files if file.parent.name.startswith("__transaction_state") and file.suffix == ".log"
    ]
    _dump(decoded, "--cluster-metadata-decoder")
    _dump(transactions, "--deep-iteration", "--transaction-log-decoder")
    if offsets:
        _dump(offsets, "--deep-iteration", "--offsets-decoder")
    others = [file for file in files if file not in (*decoded, *offsets, *transactions)]
    _dump(others, "--deep-iteration", "--print-data-log")
    _dump([file for file in files if file.suffix in (".index", ".timeindex")], "--index-sanity-check")
    return counts


def _is_metadata(file: Path) -> bool:
    return file.parent.name.startswith("__cluster_metadata") or file.name == "bootstrap.checkpoint"


def _dump(files: Iterable[Path], *options: str) -> None:
    names = ",".join(str(file) for file in files)
    command = ["java", "-cp", f"{libraries()}/*", "org.apache.kafka.tools.DumpLogSegments", "--files", names, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise Complaint(f"DumpLogSegments ends with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    complaints = list(_complaints([*done.stdout.splitlines(), *done.stderr.splitlines()]))
    if complaints:
        raise Complaint("\n".join(complaints[:20]))


def _complaints(lines: Iterable[str]) -> Iterator[str]:
    """Lines of records are passed over, since they hold whatever the records hold.

    Kafka 4.3 compares the first record of a file with the last of the file that it dumped before, or with -1: that the
    file's base offset is not the next one is no complaint about the file.
    """
    base_offset = ""
    for line in lines:
        if line.startswith("Non-consecutive offsets in "):
            base_offset = str(int(Path(line).stem))
        elif " is followed by " in line:
            if line.split()[-1] != base_offset:
                yield f"non-consecutive offsets in the file at {base_offset}: {line.strip()}"
        elif not line.startswith("| offset") and COMPLAINTS.search(line):
            yield line


# Kafka itself


def start_kafka_on(folder: Path, counts: dict[str, int], work: Path) -> None:
    """Starts Kafka on the folder, as the node that wrote it, and reads every record. Raises Complaint."""
    port, controller_port = free_port(), free_port()
    properties = work / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n"
        "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={folder}\noffsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    output = work / "kafka.log"
    command = ["java", "-Xmx512m", "-cp", f"{libraries()}/*", "kafka.Kafka", str(properties)]
    with open(output, "wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Complaint(f"Kafka does not start: {output.read_text()[-4000:]}")
            time.sleep(0.1)
        _read_back(f"127.0.0.1:{port}", counts)
    finally:
        process.terminate()
        process.wait(60)


def _read_back(servers: str, counts: dict[str, int]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    try:
        for name, expected in counts.items():
            topic, _, partition = name.rpartition("-")
            consumer.assign([TopicPartition(topic, int(partition), 0 if topic != "deleted-from" else expected)])
            found = 0
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is None:
                    continue
                if message.error() is not None:
                    if message.error().name() == "_PARTITION_EOF":
                        break
                    raise Complaint(f"{name}: {message.error()}")
                found += 1
            if found != expected:
                raise Complaint(f"Kafka reads {found} records of {name}, and {expected} were written")
    finally:
        consumer.close()


def run(*, kafka: bool = True, quiet: bool = False) -> dict[str, int]:
    """Everything; returns how many files of each kind were dumped."""

    def say(text: str) -> None:
        if not quiet:
            print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="barnabas-dump-") as work:
        folder = Path(work, "data")
        counts = make_folder(folder)
        say(f"wrote {sum(counts.values())} records to {len(counts)} partitions")
        dumped = dump_all(folder)
        say(f"DumpLogSegments read {', '.join(f'{n} {suffix}' for suffix, n in dumped.items())} without a complaint")
        if kafka:
            start_kafka_on(folder, counts, Path(work))
            say("Kafka started on the folder and served every record")
    return dumped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-kafka", action="store_true", help="only dump; do not start Kafka on the folder")
    options = parser.parse_args()
    reason = unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return
    run(kafka=not options.without_kafka)


if __name__ == "__main__":
    main()
