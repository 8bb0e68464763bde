"""The table room's arithmetic: offsets, intervals, states, checksums, options, schemas."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from barnabas.client.arrow.columns import arrow_schema
from barnabas.model.ids import TopicPartition
from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables import checksum, partitioning, runs, schema
from barnabas.spark.tables import iceberg as compaction
from barnabas.spark.tables.checksum import Checksum
from barnabas.spark.tables.errors import SchemaChanged
from barnabas.spark.tables.intervals import Interval, dense_only, end_before, insert, join_all, within
from barnabas.spark.tables.options import parse
from barnabas.spark.tables.partitioning import PartitionField, parse_fields
from barnabas.spark.tables.state import (
    MAX_WRITERS_WITH_COVERAGE,
    NOBODY,
    Gap,
    Range,
    TableState,
    Writer,
    dump_range,
    dump_state,
    load_range,
    load_state,
)
from tests.unit.spark.tables_kit import rows

ORDERS = TopicPartition("orders", 0)
OFFSETS = st.lists(st.integers(0, 60), max_size=40)


def as_set(found: runs.Runs) -> set[int]:
    return {offset for start, end in runs.bounds(found) for offset in range(start, end)}


def as_runs(offsets: list[int]) -> runs.Runs:
    return runs.of_offsets(np.array(offsets, np.int64))


# Runs


@given(OFFSETS, OFFSETS)
def test_runs_are_sets(one: list[int], other: list[int]) -> None:
    first, second = as_runs(one), as_runs(other)
    assert as_set(first) == set(one)
    assert first.offset_count == len(set(one))
    assert as_set(runs.union([first, second])) == set(one) | set(other)
    assert as_set(runs.intersect(first, second)) == set(one) & set(other)
    assert as_set(runs.subtract(first, second)) == set(one) - set(other)
    assert as_set(runs.unpack(runs.pack(first))) == set(one)
    assert runs.contains(first, np.arange(70)).tolist() == [offset in set(one) for offset in range(70)]
    for found in (first, runs.union([first, second]), runs.subtract(first, second)):
        assert all(found.starts[1:] > found.ends[:-1])  # never touching


def test_holes_lie_between_and_before() -> None:
    assert runs.holes(as_runs([5, 6, 9]), 3) == [(3, 5), (7, 9)]
    assert runs.holes(as_runs([5, 6]), 5) == []


# Intervals


def dense(start: int, end: int) -> Interval:
    return Interval(start, end, end - start, True, Checksum("kvt", start))


def test_neighbours_of_a_kind_become_one_and_add_up() -> None:
    found = insert(insert((), dense(0, 10)), dense(10, 30))
    assert found == (Interval(0, 30, 30, True, Checksum("kvt", 10)),)
    assert insert(found, Interval(30, 40, 5, False, None)) == (*found, Interval(30, 40, 5, False, None))


def test_what_overlaps_becomes_one_that_has_to_be_looked_into() -> None:
    sparse = Interval(5, 15, 4, False, Checksum("kvt", 1))
    assert insert((dense(0, 10),), sparse)[0] == Interval(0, 15, 14, False, Checksum("kvt", 1))
    assert insert((dense(0, 20),), sparse)[0].dense
    assert insert((dense(0, 10),), dense(5, 20))[0].dense


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 20), st.booleans()), max_size=40))
def test_intervals_never_lose_an_offset_and_never_claim_one(parts: list[tuple[int, int, bool]]) -> None:
    """Dense ones hold only what is in some dense one; all of them together hold everything."""
    made = [Interval(start, start + size, size, is_dense, None) for start, size, is_dense in parts]
    found = join_all([(item,) for item in made], limit=4)
    assert len(found) <= 4
    assert all(one.end <= other.start for one, other in pairwise(found))
    offsets = np.arange(250)
    everything = np.zeros(250, bool)
    surely = np.zeros(250, bool)
    for item in made:
        inside = within([item], offsets)
        everything |= inside
        surely |= inside & item.dense
    assert not (everything & ~within(found, offsets)).any()
    assert not (within(dense_only(found), offsets) & ~surely).any()
    assert sum(item.rows for item in found) == sum(item.rows for item in made)


def test_where_the_table_ended_before_an_offset() -> None:
    assert end_before((dense(0, 10), dense(20, 30)), 15) == 10
    assert end_before((dense(0, 10), dense(20, 30)), 25) == 25
    assert end_before((dense(10, 20),), 5) is None


# State


def test_a_state_comes_back_from_its_text() -> None:
    found = Range(
        partition=ORDERS,
        start=0,
        end=12,
        rows=9,
        offsets=9,
        checksum=Checksum("kv", 77),
        gaps=(Gap(3, 5, "control"), Gap(7, 8, "aborted")),
        missing={"control": 2, "aborted": 1},
        topic_id="abc",
    )
    assert found.dense
    assert load_range(dump_range(found)) == found
    state = TableState().after("q", Writer(application="app", batch=3), [found])
    assert load_state(dump_state(state)) == state
    assert state.has("q", 3)
    assert state.has("q", 2)
    assert not state.has("q", 4)
    assert not state.has("other", 0)
    assert state.topics == {"orders": "abc"}


def test_a_state_of_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match="has format 9; this version of barnabas knows 1"):
        load_state('{"format": 9}')


def test_writers_that_are_long_silent_lose_their_name_but_not_their_rows() -> None:
    state = TableState()
    count = MAX_WRITERS_WITH_COVERAGE + 5
    for number in range(count):
        item = Range(partition=ORDERS, start=number, end=number + 1, rows=1, offsets=1, checksum=None)
        state = state.after(f"q{number}", Writer(application="a", batch=0), [item])
    assert len(state.coverage) == MAX_WRITERS_WITH_COVERAGE + 1
    assert state.coverage[NOBODY][ORDERS] == (Interval(0, 5, 5, True, None),)
    assert state.total()[ORDERS] == (Interval(0, count, count, True, None),)
    assert state.has("q0", 0)


# Checksums


def test_a_checksum_does_not_depend_on_order_or_on_pieces() -> None:
    whole = rows(range(200))
    found = checksum.of_rows(whole, "kvt")
    order = list(range(200))
    random.Random(1).shuffle(order)
    assert checksum.of_rows(whole.take(pa.array(order)), "kvt") == found
    parts = [checksum.of_rows(whole.slice(start, 37), "kvt") for start in range(0, 200, 37)]
    total: Checksum | None = Checksum("kvt", 0)
    for part in parts:
        total = checksum.add(total, part)
    assert total == found
    assert checksum.parse(str(found)) == found


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 1023, 1024, 1025, 5000, 300_000])
def test_every_byte_counts(size: int) -> None:
    value = random.Random(size).randbytes(size)
    others = [value + b"\0", b"\0\0" + value]
    for at in random.Random(size).sample(range(size), min(size, 20)):
        others += [value[:at] + bytes([value[at] ^ 1 << at % 8]) + value[at + 1 :]]
    hashes = checksum.hash_values(pa.array([value, *others, None], pa.binary()))
    assert len(set(hashes.tolist())) == len(others) + 2
    alone = checksum.hash_values(pa.array([value], pa.binary()))
    assert alone[0] == hashes[0]


def test_neighbours_in_a_column_do_not_matter() -> None:
    values = [random.Random(seed).randbytes(seed * 3 % 40) for seed in range(60)]
    column = pa.array([None, *values, None], pa.binary())
    together = checksum.hash_values(column)[1:-1].tolist()
    assert together == [int(checksum.hash_values(pa.array([value], pa.binary()))[0]) for value in values]
    assert checksum.hash_values(column.slice(5, 10)).tolist() == together[4:14]
    assert checksum.hash_values(pa.array(values, pa.large_binary())).tolist() == together


def hash_by_definition(value: bytes) -> int:
    """Byte strings of eight, each beginning with the last byte of the one before, times the factor of its place."""
    words = max(len(value) - 1, 0) // checksum.STEP
    pieces = [value[at * 7 : at * 7 + 8] for at in range(words)] + [value[words * 7 :]]
    places = [int(factor) for factor in checksum._WORD_FACTORS]
    chunks = [int(factor) for factor in checksum._chunk_factors(words // 128 + 2)]
    total = sum(
        int.from_bytes(piece, "little") * places[at % 128] * chunks[at // 128] for at, piece in enumerate(pieces)
    )
    mixed = (total + len(value) * int(checksum._LENGTH_FACTOR)) & checksum.MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = ((mixed ^ mixed >> 33) * factor) & checksum.MASK
    return mixed ^ mixed >> 33


@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(min_size=880, max_size=1900)), max_size=12))
def test_hashes_are_what_the_definition_says(values: list[bytes]) -> None:
    found = checksum.hash_values(pa.array(values, pa.binary())).tolist()
    assert found == [hash_by_definition(value) for value in values]


def test_a_checksum_is_the_same_on_every_machine() -> None:
    """It stands in tables: a change of the arithmetic would make them all look damaged."""
    assert str(checksum.of_rows(rows([0, 1, 5_000_000_000]), "kvt")) == GOLDEN


GOLDEN = "kvt:d480ed5823c85158"


def test_swapped_values_are_noticed() -> None:
    whole = rows([1, 2])
    values = pa.array(whole.column("value").to_pylist()[::-1], pa.binary())
    swapped = whole.set_column(whole.schema.get_field_index("value"), "value", values)
    assert checksum.of_rows(swapped, "kvt") != checksum.of_rows(whole, "kvt")
    assert checksum.of_rows(swapped, "kt") == checksum.of_rows(whole, "kt")


def test_only_columns_as_the_topic_has_them_are_hashed() -> None:
    plain = arrow_schema(False)
    assert checksum.hashable_columns(plain) == "kvt"
    changed = plain.set(plain.get_field_index("value"), pa.field("value", pa.int64()))
    assert checksum.hashable_columns(changed) == "kt"
    assert Checksum("kt", 1).plus(Checksum("kvt", 1)) is None


# Partitioning


def test_what_tables_are_partitioned_by() -> None:
    assert parse_fields("topic, day(timestamp)") == (PartitionField("topic"), PartitionField("timestamp", "day"))
    assert parse_fields("date( t )")[0].name == "t_day"
    assert parse_fields("") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("week(t)", "'week' is unknown"), ("day(t", "is neither a column"), ("a,a", "a column is named twice")],
)
def test_what_is_no_partitioning(text: str, reason: str) -> None:
    with pytest.raises(SparkOptionError, match=f"partitionBy is .*{reason}"):
        parse({"tableFormat": "delta", "path": "/x", "partitionBy": text})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("country", "names the column country, which the rows do not have"),
        ("timestamp", r"makes no folders: day\(timestamp\) would be right"),
        ("day(topic)", "is string, not a time"),
        ("value", "whose type binary makes no folders"),
    ],
)
def test_what_columns_cannot_do(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        partitioning.check_fields(parse_fields(text), arrow_schema(False))


def test_rows_are_split_by_folder_and_keep_their_order() -> None:
    whole = pa.Table.from_batches([rows([1, 2]), rows([3], topic="a"), rows([4, 5], day=1)]).combine_chunks()
    (batch,) = whole.to_batches()
    found = dict(partitioning.split(batch, parse_fields("topic,day(timestamp),hour(timestamp)")))
    assert {key: part.column("offset").to_pylist() for key, part in found.items()} == {
        ("orders", "2023-11-14", "2023-11-14-22"): [1, 2],
        ("a", "2023-11-14", "2023-11-14-22"): [3],
        ("orders", "2023-11-15", "2023-11-15-22"): [4, 5],
    }


# Schemas


def test_types_of_spark() -> None:
    nested = spark.StructType([spark.StructField("a", spark.ArrayType(spark.ShortType()))])
    struct = spark.StructType(
        [
            spark.StructField("id", spark.ByteType(), nullable=False),
            spark.StructField("amount", spark.DecimalType(10, 2)),
            spark.StructField("at", spark.TimestampType()),
            spark.StructField("nested", nested),
            spark.StructField("tags", spark.MapType(spark.StringType(), spark.LongType())),
        ]
    )
    found = schema.from_spark(struct, "delta")
    assert found.field("id") == pa.field("id", pa.int8())
    assert found.field("at").type == pa.timestamp("us", tz="UTC")
    assert found.field("nested").type == pa.struct([("a", pa.list_(pa.field("element", pa.int16())))])
    wide = schema.from_spark(struct, "iceberg")
    assert wide.field("id").type == pa.int32()
    assert wide.field("nested").type == pa.struct([("a", pa.list_(pa.field("element", pa.int32())))])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("a", spark.NullType())], "the column a has the type void, which a table cannot hold"),
        ([("a", spark.LongType()), ("A", spark.LongType())], "cannot differ in case alone: A, a"),
        ([], "the rows have no columns"),
    ],
)
def test_columns_that_no_table_holds(fields: list[tuple[str, spark.DataType]], reason: str) -> None:
    struct = spark.StructType([spark.StructField(name, kind) for name, kind in fields])
    with pytest.raises(SchemaChanged, match=reason):
        schema.from_spark(struct, "delta")


def test_narrower_numbers_fit_and_wider_do_not() -> None:
    table = pa.schema([("n", pa.int64()), ("d", pa.decimal128(12, 2))])
    rows_schema = pa.schema([("n", pa.int32()), ("d", pa.decimal128(10, 2))])
    assert schema.merge(table, rows_schema, add_columns=False, name="t") == table
    with pytest.raises(SchemaChanged, match="the column n is int64, but int32"):
        schema.merge(rows_schema, table, add_columns=True, name="t")
    with pytest.raises(SchemaChanged, match="the column N is named n in the table t"):
        schema.merge(table, pa.schema([("N", pa.int64())]), add_columns=True, name="t")


def test_rows_take_the_shape_of_the_table() -> None:
    zoned = pa.record_batch(
        {"at": pa.array([1], pa.timestamp("us", tz="Europe/Berlin")), "n": pa.array([7], pa.int32())}
    )
    wanted = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("new", pa.string())])
    found = schema.conform(zoned, wanted)
    assert found.schema == wanted
    assert found.column("at").cast(pa.int64()).to_pylist() == [1]
    assert found.column("new").to_pylist() == [None]


# Options


@pytest.mark.parametrize(
    ("given_options", "reason"),
    [
        ({"tableFormat": "orc"}, "tableFormat is 'orc': delta or iceberg is right"),
        ({"tableFormat": "parquet", "path": "/x"}, r"Spark writes plain Parquet itself, with format\('parquet'\)"),
        ({}, "path is missing: the folder of the delta table"),
        ({"path": "/x", "partitionedBy": "topic"}, r"partitionedBy is no option of the table sink: partitionBy\?"),
        ({"path": "/x", "colour": "red"}, "colour is no option of the table sink: known are tableFormat, path"),
        ({"path": "/x", "targetFileSize": "big"}, "targetFileSize is 'big': a size such as 64mb is right"),
        (
            {"path": "/x", "expireAfter": "soon"},
            "expireAfter is 'soon': a time such as 500ms, 30s, 15m",
        ),
        ({"path": "/x", "expireAfter": "59m"}, "expireAfter is '59m': it must be at least 3600s"),
        ({"path": "/x", "expireAfter": "0s"}, "expireAfter is '0s': it must be at least 3600s"),
        ({"path": "/x", "compactEvery": "-1"}, "compactEvery is '-1': a whole number of at least 0 is right"),
        ({"path": "/x", "mergeSchema": "perhaps"}, "mergeSchema is 'perhaps': true or false is right"),
        ({"path": "/x", "compression": "rar"}, "compression is 'rar': zstd or snappy"),
        ({"path": "/x", "table": "a.b"}, "table is for tableFormat iceberg"),
        ({"path": "/x", "catalog.uri": "x"}, r"catalog\.uri is for tableFormat iceberg"),
        ({"tableFormat": "iceberg", "path": "/x"}, "table is '': NAMESPACE.NAME"),
        ({"tableFormat": "iceberg", "path": "/x", "table": "orders"}, "table is 'orders': NAMESPACE.NAME"),
        ({"tableFormat": "iceberg", "table": "a.b"}, "path is missing: the warehouse folder"),
        ({"path": "/x", "kafka.bootstrap.server": "h:1"}, r"kafka\.bootstrap\.servers\?"),
    ],
)
def test_bad_options_are_refused_by_name(given_options: dict[str, str], reason: str) -> None:
    with pytest.raises(SparkOptionError, match=reason):
        parse({"tableFormat": "delta", **given_options})


def test_options_by_default_and_by_any_case() -> None:
    found = parse({"TABLEFORMAT": "Delta", "Path": "/x", "checkpointLocation": "/c", "targetfilesize": "1 MB"})
    assert (found.format, found.path, found.target_bytes, found.compression) == ("delta", "/x", 1 << 20, "zstd")
    assert (found.compact_every, found.expire_after_s, found.partition_by) == (100, 7 * 86400, None)
    catalog = parse({"tableFormat": "iceberg", "table": "a.b", "catalog.type": "rest", "catalog.uri": "http://c"})
    assert catalog.catalog == {"type": "rest", "uri": "http://c"}
    assert replace(found, path="/y") != found


# Compaction


def test_small_files_of_one_folder_go_together() -> None:
    sizes = [("a", 10), ("b", 10), ("a", 90), ("a", 30), ("a", 40), ("a", 50), ("c", 5)]
    candidates = [compaction.Candidate(folder, size, (folder, size)) for folder, size in sizes]
    assert compaction.plan(candidates, 100) == [[("a", 10), ("a", 30), ("a", 40)]]
