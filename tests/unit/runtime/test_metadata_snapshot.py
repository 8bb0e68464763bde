"""A damaged metadata snapshot is refused, never loaded with wrong content."""

from __future__ import annotations

from barnabas.core.raft.machine import Voter
from barnabas.model.ids import Uuid
from barnabas.runtime import metadata_snapshot
from barnabas.sim.disk import SimDisk
from barnabas.wire.stored.metadata_topics import TopicRecord

PATH = "/data/00000000000000000009-0000000001.checkpoint"


def test_no_flipped_bit_changes_what_is_loaded() -> None:
    disk = SimDisk()
    disk.make_directory("/data")
    quorum = metadata_snapshot.quorum_entries([Voter(1, Uuid(b"1" * 16))], [("CONTROLLER", "localhost", 9093)])
    records = [TopicRecord(name=name, topic_id=Uuid(b"t" * 16)) for name in ("orders", "payments")]
    metadata_snapshot.write(disk, PATH, records, raft_epoch=1, timestamp_ms=5, quorum=quorum)
    sound, content = metadata_snapshot.read(disk, PATH), disk.read_file(PATH)
    refused = 0
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x20
        disk.write_file(PATH, damaged)
        try:
            assert metadata_snapshot.read(disk, PATH) == sound
        except metadata_snapshot.CorruptSnapshot:
            refused += 1
    assert refused > len(content) * 0.8
