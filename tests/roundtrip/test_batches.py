"""Record batches written by Kafka itself: decoded to their records, and encoded back byte for byte."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.wire import batch, records, walk
from barnabas.wire.compression import Codec
from barnabas.wire.murmur2 import murmur2, partition_for_key

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
BATCHES: list[dict[str, Any]] = [json.loads(line) for line in (GOLDEN / "batches.jsonl").read_text().splitlines()]
ODD: list[dict[str, Any]] = [json.loads(line) for line in (GOLDEN / "odd_batches.jsonl").read_text().splitlines()]
"""Timestamps at the ends of their range, delete horizons, gaps, sequences that wrap, batches without a record."""
DATA = [row for row in BATCHES if "records" in row]
MARKERS = [row for row in BATCHES if "marker" in row]

DETERMINISTIC = {Codec.NONE, Codec.LZ4}
"""Codecs whose library gives the bytes that Kafka's gives."""


def raw(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def expected(row: dict[str, Any]) -> list[records.Record]:
    return [
        records.Record(offset, timestamp, raw(key), raw(value), tuple((name, raw(held)) for name, held in headers))
        for offset, timestamp, key, value, headers in row["records"]
    ]


def encode(row: dict[str, Any], codec: Codec) -> bytes:
    return records.encode_batch(
        expected(row), codec=codec, transactional="transactional" in row["flags"], **row["header"]
    )


def test_there_are_batches_of_every_codec() -> None:
    assert {row["codec"] for row in DATA} == {codec.name.lower() for codec in Codec}
    assert len(MARKERS) == 6


@pytest.mark.parametrize("row", BATCHES, ids=lambda row: f"{row['codec']}-{row['header']['base_offset']}")
def test_headers(row: dict[str, Any]) -> None:
    whole = bytes.fromhex(row["batch"])
    header = batch.read_header(whole)
    assert header.size == len(whole)
    assert batch.check_crc(whole, 0, header.size)
    assert header.codec.name.lower() == row["codec"]
    assert header._asdict() | row["header"] == header._asdict()
    assert header.is_transactional == ("transactional" in row["flags"])
    assert header.is_control == ("control" in row["flags"])
    assert batch.encode_header(header) == whole[: batch.HEADER_SIZE]


@pytest.mark.parametrize("row", DATA, ids=lambda row: f"{row['codec']}-{row['header']['base_offset']}")
def test_records_there_and_back(row: dict[str, Any]) -> None:
    whole = bytes.fromhex(row["batch"])
    codec = Codec[row["codec"].upper()]
    assert records.decode_batch(whole) == expected(row)
    again = encode(row, codec)
    assert records.decode_batch(again) == expected(row)
    if codec in DETERMINISTIC:
        assert again == whole


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("row", DATA, ids=lambda row: f"{row['codec']}-{row['header']['base_offset']}")
def test_walks_take_what_kafka_wrote(row: dict[str, Any], native: bool) -> None:
    if native and not walk.NATIVE_AVAILABLE:
        pytest.skip("the extension was not built")
    whole = bytes.fromhex(row["batch"])
    header = batch.read_header(whole)
    before = walk.NATIVE
    walk.use(native)
    try:
        summary = walk.check_payload(records.payload(whole, 0, header), header.record_count, header.base_timestamp)
        if header.codec is Codec.NONE:
            assert walk.check_records(whole, 0, header.size) == summary
    finally:
        walk.use(before)
    timestamps = [record.timestamp for record in expected(row)]
    assert summary.max_timestamp == max(timestamps) == header.max_timestamp
    assert summary.offset_of_max_timestamp == timestamps.index(max(timestamps))
    assert summary.min_timestamp == min(timestamps)
    assert summary.has_null_key == any(record.key is None for record in expected(row))


@pytest.mark.parametrize("row", MARKERS, ids=lambda row: f"{row['marker']}-{row['coordinator_epoch']}")
def test_end_markers(row: dict[str, Any]) -> None:
    whole = bytes.fromhex(row["batch"])
    (record,) = records.decode_batch(whole)
    control_type = records.read_control_type(record)
    assert control_type is records.ControlType[row["marker"]]
    assert records.read_coordinator_epoch(record) == row["coordinator_epoch"]
    header = {name: value for name, value in row["header"].items() if name != "base_sequence"}
    again = records.encode_end_marker(
        commit=row["marker"] == "COMMIT",
        coordinator_epoch=row["coordinator_epoch"],
        timestamp=record.timestamp,
        **header,
    )
    assert again == whole


@pytest.mark.parametrize("row", ODD, ids=lambda row: f"{row['codec']}-{row['batch'][34:42]}")
def test_odd_batches(row: dict[str, Any]) -> None:
    whole = bytes.fromhex(row["batch"])
    codec, flags = Codec[row["codec"].upper()], row["flags"]
    header = batch.read_header(whole)
    assert batch.check_crc(whole, 0, header.size)
    assert header._asdict() | row["header"] == header._asdict()
    assert (header.record_count, header.last_offset, header.codec) == (row["record_count"], row["last_offset"], codec)
    assert header.last_sequence == row["last_sequence"]
    assert header.is_log_append_time == ("log_append_time" in flags)
    found = records.decode_batch(whole)
    assert found == expected(row)
    if codec is not Codec.NONE or not found:
        return
    fields = {name: value for name, value in row["header"].items() if not name.endswith("_timestamp")}
    again = records.encode_batch(
        found,
        transactional="transactional" in flags,
        control="control" in flags,
        log_append_time=header.max_timestamp if header.is_log_append_time else None,
        delete_horizon=row["delete_horizon"],
        last_offset=row["last_offset"],
        **fields,
    )
    assert records.decode_batch(again) == found
    # Log append time hides the records' own timestamps, and one batch tells another largest than its records have.
    if not header.is_log_append_time and header.max_timestamp == max(record.timestamp for record in found):
        assert again == whole


def test_murmur2() -> None:
    with (GOLDEN / "murmur2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        key = bytes.fromhex(row["key"])
        assert murmur2(key) == int(row["hash"])
        assert partition_for_key(key, 7) == int(row["of_7"])
        assert partition_for_key(key, 100) == int(row["of_100"])
