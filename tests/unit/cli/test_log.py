"""``barnabas log dump``: files of a partition, sound and damaged."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from barnabas.core.metadata import records as metadata
from barnabas.wire.compression import Codec
from barnabas.wire.records import ControlType, Record, encode_batch, encode_control, encode_end_marker
from barnabas.wire.stored.metadata_topics import TopicRecord
from tests.unit.cli.command_line import json_lines, run

NOW = 1_700_000_000_000
NAME = "00000000000000000100"


def _batch(offset: int, codec: Codec = Codec.NONE, size: int = 3) -> bytes:
    records = [
        Record(timestamp=NOW + offset + at, key=b"k", value=b"v" * 50, headers=(("h", b"\xff"),)) for at in range(size)
    ]
    return encode_batch(records, base_offset=offset, leader_epoch=4, codec=codec)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Five batches of three records, one of each codec, with their indexes."""
    folder = tmp_path / "hello-0"
    folder.mkdir()
    batches = [_batch(100 + 3 * at, codec) for at, codec in enumerate(Codec)]
    positions = [sum(map(len, batches[:at])) for at in range(len(batches))]
    (folder / f"{NAME}.log").write_bytes(b"".join(batches))
    entries = [(3 * at + 2, positions[at]) for at in (1, 3)]
    (folder / f"{NAME}.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    times = [(NOW + 100 + relative, relative) for relative, _ in entries]
    (folder / f"{NAME}.timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in times))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n4 100\n")
    (folder / f"{NAME}.snapshot").write_bytes(_snapshot())
    return folder


def _snapshot() -> bytes:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 1, 9, 99, 2, NOW, 0, -1)
    return struct.pack(">hI", 1, crc32c(body)) + body


def _problems(folder: Path) -> list[str]:
    result = run("log", "dump", str(folder), "--records", "--json", code=1)
    assert "Error: " in result.stderr
    return [item["problem"] for item in json_lines(result) if item["type"] == "problem"]


def _change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_a_sound_folder_is_dumped(partition: Path) -> None:
    result = run("log", "dump", str(partition), "--records")
    assert "5 files, all sound." in result.stdout
    assert "offsets 100-102" in result.stdout
    assert "5 batches, 15 records" in result.stdout
    for codec in Codec:
        assert f"  {codec.name.lower()}  " in result.stdout


def test_items_for_programs(partition: Path) -> None:
    items = json_lines(run("log", "dump", str(partition), "--records", "--json"))
    kinds: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        kinds.setdefault(item["type"], []).append(item)
    assert len(kinds["batch"]) == 5
    assert all(item["valid"] for item in kinds["batch"])
    assert [item["offset"] for item in kinds["record"]] == list(range(100, 115))
    assert kinds["record"][0]["headers"] == [{"key": "h", "value_base64": "/w=="}]
    assert len(kinds["entry"]) == 4
    assert kinds["producer"][0]["producer_id"] == 7
    assert kinds["epoch"] == [{**kinds["epoch"][0], "leader_epoch": 4, "start_offset": 100}]
    assert kinds["total"] == [{"type": "total", "files": 5, "problems": 0, "damaged": []}]


def test_quiet_shows_a_line_for_each_file(partition: Path) -> None:
    text = run("log", "dump", str(partition), "--quiet").stdout
    assert "batch offsets" not in text
    assert text.count("  = ") == 5


def test_a_changed_byte_is_found_and_the_rest_is_read(partition: Path) -> None:
    _change(partition / f"{NAME}.log", 100, b"\x7f")
    (problem,) = _problems(partition)
    assert problem == "checksum mismatch in the batch at position 0"
    batches = [
        item for item in json_lines(run("log", "dump", str(partition), "--json", code=1)) if item["type"] == "batch"
    ]
    assert [item["valid"] for item in batches] == [False, True, True, True, True]


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_torn_tail_is_found(partition: Path, cut: int) -> None:
    path = partition / f"{NAME}.log"
    path.write_bytes(path.read_bytes()[:-cut])
    assert any("no batch at position" in problem for problem in _problems(partition))


def test_zeros_at_the_end_are_preallocated(partition: Path) -> None:
    for name, size in ((".log", 4096), (".index", 800), (".timeindex", 1200)):
        path = partition / (NAME + name)
        path.write_bytes(path.read_bytes() + bytes(size))
    assert run("log", "dump", str(partition)).stdout.count("preallocated") == 3


def test_offsets_that_go_back_are_found(partition: Path) -> None:
    path = partition / f"{NAME}.log"
    path.write_bytes(path.read_bytes() + _batch(103))
    assert any("begins at offset 103, expected 115" in problem for problem in _problems(partition))


def test_an_index_that_does_not_fit_its_log_is_found(partition: Path) -> None:
    _change(partition / f"{NAME}.index", 4, struct.pack(">i", 17))
    _change(partition / f"{NAME}.timeindex", 0, struct.pack(">q", NOW))
    problems = _problems(partition)
    assert "entry 0 says offset 105 is at position 17, the log does not" in problems
    assert f"entry 0 says offset 105 is of time {NOW}, the log does not" in problems


def test_an_index_without_order_or_with_half_an_entry_is_found(partition: Path) -> None:
    path = partition / f"{NAME}.index"
    path.write_bytes(path.read_bytes() + path.read_bytes()[:8] + b"\x01")
    problems = _problems(partition)
    assert any("does not ascend" in problem for problem in problems)
    assert any("no whole number" in problem for problem in problems)


def test_damaged_snapshots_and_checkpoints_are_found(partition: Path) -> None:
    _change(partition / f"{NAME}.snapshot", 20, b"\xff")
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n4 100\n3 200\n")
    (partition / "recovery-point-offset-checkpoint").write_text("0\n2\nhello 0 100\n")
    problems = _problems(partition)
    assert len(problems) == 3
    assert any("checksum" in problem for problem in problems)
    assert any("does not ascend" in problem for problem in problems)


def test_an_aborted_transaction_needs_its_marker(tmp_path: Path) -> None:
    name = "0" * 20
    data = encode_batch(
        [Record(timestamp=NOW, value=b"x")], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )
    marker = encode_end_marker(
        commit=False, coordinator_epoch=3, producer_id=5, producer_epoch=0, timestamp=NOW, base_offset=1
    )
    (tmp_path / f"{name}.log").write_bytes(data + marker)
    index = tmp_path / f"{name}.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 5, 0, 1, 2))
    text = run("log", "dump", str(tmp_path), "--records").stdout
    assert "control abort  coordinator epoch 3" in text
    index.write_bytes(struct.pack(">hqqqq", 0, 5, 0, 0, 2))
    assert _problems(tmp_path) == ["entry 0: no marker of producer 5 at offset 0"]


def test_metadata_is_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    control = encode_control(ControlType.SNAPSHOT_FOOTER, b"\x00\x00\x00", timestamp=NOW)
    known = Record(timestamp=NOW, value=metadata.encode(TopicRecord(name="hello", topic_id=bytes(16))))
    unknown = Record(timestamp=NOW, value=b"\x01\x63\x00\x00")
    (folder / f"{'0' * 20}.log").write_bytes(control + encode_batch([known, unknown], base_offset=1))
    records = [
        item for item in json_lines(run("log", "dump", str(folder), "--records", "--json")) if item["type"] == "record"
    ]
    assert records[0]["control"] == "snapshot_footer"
    assert records[1]["message"] == "TopicRecord"
    assert records[1]["value"]["name"] == "hello"
    assert "99" in records[2]["unknown"]


def test_a_bomb_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / f"{'0' * 20}.log"
    path.write_bytes(encode_batch([Record(timestamp=NOW, value=bytes(1 << 22))], codec=Codec.ZSTD))
    result = run("log", "dump", str(path), "--records", "--max-batch-bytes", "1000000", code=1)
    assert "decompresses to more than 1000000 bytes" in result.stdout


def test_a_file_that_belongs_to_no_log_is_told(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "no file of a log" in run("log", "dump", str(path), code=1).stdout
