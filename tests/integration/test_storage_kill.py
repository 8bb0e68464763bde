"""kill -9 in the middle of appending: what was acknowledged is there, in order and without holes."""

from __future__ import annotations

import subprocess
import sys

from barnabas.app.os_disk import OsDisk
from barnabas.model.ids import TopicPartition
from barnabas.storage.log import Log
from tests.unit.storage.kit import NOW, append, read_all, small

WRITER = """
import sys
from barnabas.app.os_disk import OsDisk
from barnabas.model.ids import TopicPartition
from barnabas.model.topic_settings import TopicSettings
from barnabas.storage.log import Log
from barnabas.wire.records import Record, encode_batch

log = Log.open(OsDisk(), sys.argv[1], TopicPartition("t", 0), TopicSettings(segment_bytes=50_000), now_ms=0)
number = log.log_end_offset
while True:
    data = encode_batch([Record(-1, 1000, b"k", b"%d" % number)])
    log.append_as_leader(memoryview(bytearray(data)), 0, 1000)
    number += 1
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_acknowledged_records_survive_kills(tmp_path):
    directory = str(tmp_path / "t-0")
    acknowledged = 0
    for lines in (300, 900, 50):
        with subprocess.Popen([sys.executable, "-c", WRITER, directory], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
        log = Log.open(OsDisk(), directory, TopicPartition("t", 0), small(segment_bytes=50_000), now_ms=NOW)
        found = [record.value for record in read_all(log)]
        assert len(found) >= acknowledged
        assert found == [b"%d" % number for number in range(len(found))]
        append(log, None)
        log.truncate_to(len(found))
        log.close(clean=False)
