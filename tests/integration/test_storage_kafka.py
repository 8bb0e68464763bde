"""Kafka's own DumpLogSegments reads what we write, and complains about nothing.

Needs a Java runtime and Kafka's jars (``KAFKA_LIBS``, else /tmp/kafka/libs); skipped without.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.app.os_disk import OsDisk
from barnabas.model.ids import TopicPartition
from barnabas.storage.log import Log
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, encode_batch
from tests.unit.storage.kit import NOW, append, end_transaction, small

LIBS = Path(os.environ.get("KAFKA_LIBS", "/tmp/kafka/libs"))
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|not found|out of order|corrupt|invalid|error|exception|isvalid: false", re.IGNORECASE
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("java") or not LIBS.is_dir(), reason="no Java or no Kafka"),
]


def dump(files: list[Path], *options: str) -> str:
    names = ",".join(str(file) for file in files)
    command = ["java", "-cp", f"{LIBS}/*", "org.apache.kafka.tools.DumpLogSegments", "--files", names, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(directory: Path) -> Log:
    """Several segments with everything in them: codecs, producers, transactions, epochs, times out of order."""
    generator = random.Random(1)
    settings = small(segment_bytes=40_000, index_interval_bytes=1000)
    log = Log.open(OsDisk(), str(directory), TopicPartition("t", 0), settings, now_ms=NOW)
    sequences = {7: 0, 8: 0}
    for number in range(400):
        count = generator.randrange(1, 20)
        times = [NOW + number * 10 - generator.randrange(0, 3000) for _ in range(count)]
        records = [Record(-1, time, b"k%d" % number, b"v" * generator.randrange(0, 90)) for time in times]
        fields: dict = {}
        producer = (0, 7, 8)[number % 3]
        if producer:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            sequences[producer] += count
        codec = generator.choice(list(Codec))
        data = encode_batch(records, codec=codec, transactional=producer == 8, **fields)
        append(log, data, leader_epoch=number // 90)
        if number % 40 == 39:
            end_transaction(log, 8, commit=number % 80 == 79)
    assert len(log.segments) > 3
    return log


def test_dump_log_segments_agrees(tmp_path):
    directory = tmp_path / "t-0"
    log = write(directory)
    log.close()
    files = sorted(file for file in directory.iterdir() if file.suffix != "" and "checkpoint" not in file.name)
    assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    text = dump(files, "--deep-iteration", "--print-data-log")
    plain = [line for line in text.splitlines() if not line.startswith("| offset")]
    assert [line for line in plain if COMPLAINTS.search(line)] == []
    assert len(re.findall(r"^baseOffset:", text, re.MULTILINE)) == sum(1 for s in log.segments for _ in s.batches())
    assert len(re.findall(r"^\| offset", text, re.MULTILINE)) == log.log_end_offset
    assert len(re.findall(r"firstOffset: \d+ lastOffset", text)) == 5


def test_the_indexes_pass_kafkas_sanity_check_after_recovery(tmp_path):
    directory = tmp_path / "t-0"
    write(directory)  # and the process is gone
    log = Log.open(
        OsDisk(),
        str(directory),
        TopicPartition("t", 0),
        small(segment_bytes=40_000, index_interval_bytes=1000),
        now_ms=NOW,
    )
    log.close()
    files = sorted(file for file in directory.iterdir() if file.suffix in (".index", ".timeindex"))
    text = dump(files, "--index-sanity-check")
    assert text.count("passed sanity check") == len(files)
    text = dump(files, "--verify-index-only")
    assert [line for line in text.splitlines() if COMPLAINTS.search(line)] == []
