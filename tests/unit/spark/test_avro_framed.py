"""Framed Avro values: the id before a value decides how it is read, as Avro's schema resolution has it."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.avro import AvroDecoder, AvroError, Decoded, Reason
from barnabas.spark.avro_resolution import FramedDecoder, schema_ids

fastavro = pytest.importorskip("fastavro")

READER, WRITER = 7, 3
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)


def record(*fields: dict[str, Any], name: str = "Row") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def framed(schema_id: int, schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return struct.pack(">bI", 0, schema_id) + stream.getvalue()


def decode(reader: Any, writers: Mapping[int, Any], values: list[bytes | None]) -> Decoded:
    made = FramedDecoder(json.dumps(reader), {number: json.dumps(schema) for number, schema in writers.items()})
    found = made.decode(pa.array(values, pa.binary()))
    found.array.validate(full=True)
    assert len(found.array) == len(values)
    assert found.array.type == AvroDecoder(json.dumps(reader)).arrow_type
    return found


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


PLACE = record(field("x", "int"), name="Place")
NEW_PLACE = record(field("y", "string", default="?"), field("x", "double"), name="Place")
OTHER = record(field("x", "int"), name="Other")
KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}
FEWER = {"type": "enum", "name": "Kind", "symbols": ["B"], "default": "B"}
DECIMAL = logical("bytes", "decimal", precision=9, scale=2)


@pytest.mark.parametrize(
    ("writer", "reader", "row", "wanted"),
    [
        ([field("a", "int"), field("b", "int")], [field("b", "int"), field("a", "int")], {"a": 1, "b": 2}, (2, 1)),
        ([field("a", "int"), field("b", "int")], [field("b", "int")], {"a": 1, "b": 2}, (2,)),
        ([field("a", "int")], [field("a", "int"), field("b", "string", default="x")], {"a": 1}, (1, "x")),
        ([field("a", "int")], [field("a", "int"), field("b", "bytes", default="\u00ff")], {"a": 1}, (1, b"\xff")),
        ([field("a", "int")], [field("a", "int"), field("p", PLACE, default={"x": 5})], {"a": 1}, (1, {"x": 5})),
        ([field("a", "int")], [field("a", "int"), field("d", DECIMAL, default="\x7d")], {"a": 1}, (1, Decimal("1.25"))),
        ([field("a", "int")], [field("a", ["int", "null", "long"], default=5)], {"a": 1}, (1,)),
        ([field("a", "int")], [field("b", "int", aliases=["a"])], {"a": 1}, (1,)),
        ([field("a", "int")], [field("a", "long")], {"a": -1}, (-1,)),
        ([field("a", "long")], [field("a", "double")], {"a": 3}, (3.0,)),
        ([field("a", "float")], [field("a", "double")], {"a": 0.5}, (0.5,)),
        ([field("a", "string")], [field("a", "bytes")], {"a": "é"}, ("é".encode(),)),
        ([field("a", "bytes")], [field("a", "string")], {"a": "é".encode()}, ("é",)),
        ([field("a", "double")], [field("a", ["float", "double"])], {"a": 0.1}, (0.1,)),
        ([field("a", "int")], [field("a", ["null", "long"])], {"a": 4}, (4,)),
        ([field("a", ["null", "int"])], [field("a", "long")], {"a": 4}, (4,)),
        ([field("a", KIND)], [field("a", FEWER)], {"a": "C"}, ("B",)),
        ([field("a", PLACE)], [field("a", NEW_PLACE)], {"a": {"x": 2}}, ({"y": "?", "x": 2.0},)),
        (
            [field("a", {"type": "array", "items": PLACE})],
            [field("a", {"type": "array", "items": NEW_PLACE})],
            {"a": [{"x": 2}]},
            ([{"y": "?", "x": 2.0}],),
        ),
        ([field("a", {"type": "map", "values": "int"})], [field("a", {"type": "map", "values": "long"})],
         {"a": {"k": 2}}, ([("k", 2)],)),
        (
            [field("a", ["null", PLACE, OTHER])],
            [field("a", ["null", OTHER, PLACE])],
            {"a": ("Other", {"x": 2})},
            ({"member0": {"x": 2}, "member1": None},),
        ),
        ([field("a", logical("long", "timestamp-millis"))], [field("a", logical("long", "timestamp-micros"))],
         {"a": MOMENT}, (MOMENT,)),
        ([field("a", DECIMAL)], [field("a", logical("bytes", "decimal", precision=9, scale=4))],
         {"a": Decimal("1.25")}, (Decimal("1.2500"),)),
        ([field("a", logical("string", "uuid"))], [field("b", "int", default=0), field("a", "string")],
         {"a": "0e2e3f9e-7d6f-4f5a-9a55-7f1d3a2b4c5d"}, (0, "0e2e3f9e-7d6f-4f5a-9a55-7f1d3a2b4c5d")),
    ],
)  # fmt: skip
def test_resolution(writer: list[Any], reader: list[Any], row: Any, wanted: tuple[Any, ...]) -> None:
    schemas = {WRITER: record(*writer), READER: record(*reader)}
    found = decode(schemas[READER], schemas, [framed(WRITER, schemas[WRITER], row), None])
    assert found.faults == []
    (made, nothing) = found.array.to_pylist()
    assert (tuple(made.values()), nothing) == (wanted, None)


@pytest.mark.parametrize(
    ("writer", "reader", "row", "reason"),
    [
        ([field("a", "int")], [field("a", "int"), field("b", "int")], {"a": 1}, "No default value for field b"),
        ([field("a", "int")], [field("a", "string")], {"a": 1}, "int is not string"),
        ([field("a", ["null", "int"])], [field("a", "int")], {"a": None}, "schema id 3"),
        ([field("a", DECIMAL)], [field("a", logical("bytes", "decimal", precision=9, scale=1))],
         {"a": Decimal("1.25")}, "schema id 3"),
        ([field("a", "int")], [field("a", ["int", "string", "long"])], {"a": 1}, "its union cannot be told apart"),
        ([field("a", "string")], [field("a", ["null", KIND, "string"])], {"a": "A"}, "its union cannot be told apart"),
    ],
)  # fmt: skip
def test_what_cannot_be_resolved_is_a_fault(writer: list[Any], reader: list[Any], row: Any, reason: str) -> None:
    schemas = {WRITER: record(*writer), READER: record(*reader)}
    found = decode(schemas[READER], schemas, [framed(WRITER, schemas[WRITER], row)])
    assert [fault.reason for fault in found.faults] == [Reason.RESOLUTION]
    assert reason in str(found.faults[0])
    assert found.array.to_pylist() == [None]


OLD = record(field("a", "int"), field("b", "string"))
NEW = record(field("b", "string"), field("a", "long"), field("c", "int", default=9))


def test_rows_keep_their_order_and_faults_their_rows() -> None:
    values = [
        framed(WRITER, OLD, {"a": 1, "b": "one"}),
        b"no frame",
        framed(READER, NEW, {"a": 2, "b": "two", "c": 3}),
        None,
        framed(99, OLD, {"a": 4, "b": "four"}),
        framed(WRITER, OLD, {"a": 5, "b": "five"})[:-2],
        b"",
        framed(WRITER, OLD, {"a": 7, "b": "seven"}),
        framed(5, OLD, {"a": 8, "b": "eight"}),
    ]
    found = decode(NEW, {WRITER: OLD, READER: NEW, 5: {"type": "int"}}, values)
    rows = [row and (row["a"], row["b"], row["c"]) for row in found.array.to_pylist()]
    assert rows == [(1, "one", 9), None, (2, "two", 3), None, None, None, None, (7, "seven", 9), None]
    assert [(fault.row, fault.reason) for fault in found.faults] == [
        (1, Reason.NOT_FRAMED),
        (4, Reason.UNKNOWN_SCHEMA),
        (5, Reason.SHORT),
        (6, Reason.NOT_FRAMED),
        (8, Reason.RESOLUTION),
    ]
    assert str(found.faults[1]) == "the schema that wrote the value is not known (schema id 99)"


def test_bytes_that_would_decode_to_wrong_values_do_not() -> None:
    """Reordered fields of one type: nothing in the bytes tells."""
    old, new = record(field("a", "int"), field("b", "int")), record(field("b", "int"), field("a", "int"))
    values: list[bytes | None] = [framed(WRITER, old, {"a": 1, "b": 2})]
    assert decode(new, {WRITER: old}, values).array.to_pylist() == [{"b": 2, "a": 1}]
    assert decode(new, {READER: new}, values).array.to_pylist() == [None]


def test_the_first_fault_stops_where_that_is_asked_for() -> None:
    decoder = FramedDecoder(json.dumps(NEW), {WRITER: json.dumps(OLD)})
    values = pa.array([framed(WRITER, OLD, {"a": 1, "b": "x"}), framed(1, OLD, {"a": 1, "b": "x"})], pa.binary())
    with pytest.raises(AvroError, match="schema id 1"):
        decoder.decode(values, stops_at_fault=True)


def test_a_function_is_asked_once_for_each_id() -> None:
    asked: list[int] = []

    def look_up(schema_id: int) -> str | None:
        asked.append(schema_id)
        if schema_id == 99:
            raise KeyError(schema_id)
        return {WRITER: json.dumps(OLD), READER: json.dumps(NEW)}.get(schema_id)

    decoder = FramedDecoder(json.dumps(NEW), look_up)
    ids = [WRITER, READER, 98, 99]
    values = pa.array([framed(number, NEW if number == READER else OLD, ROW) for number in ids], pa.binary())
    for _ in range(2):
        assert [fault.row for fault in decoder.decode(values).faults] == [2, 3]
    assert sorted(asked) == ids


ROW = {"a": 1, "b": "x", "c": 9}


def test_schemas_that_differ_in_words_alone_are_the_same() -> None:
    """As registries store them: then the fast decoder takes all rows at once."""
    worded = {**NEW, "doc": "orders", "namespace": "shop", "fields": [{**item, "doc": "?"} for item in NEW["fields"]]}
    decoder = FramedDecoder(json.dumps(NEW), {READER: json.dumps(worded)})
    values = pa.array([framed(READER, NEW, ROW)] * 3, pa.binary())
    assert decoder.decode(values).array.to_pylist() == [{"b": "x", "a": 1, "c": 9}] * 3


@given(st.lists(st.none() | st.binary(max_size=8) | st.integers(0, 2**32 - 1)), st.integers(0, 3))
def test_ids_are_found_in_any_slice(items: list[Any], start: int) -> None:
    values = [struct.pack(">bI", 0, item) if isinstance(item, int) else item for item in items]

    def wanted(value: bytes | None) -> int:
        if value is None:
            return -1
        return struct.unpack(">I", value[1:5])[0] if len(value) >= 5 and value[0] == 0 else -2

    column = pa.array(values, pa.binary()).slice(min(start, len(values)))
    assert list(schema_ids(column)) == [wanted(value) for value in values[start:]]


@given(st.binary(max_size=40))
def test_damaged_values_cost_their_row_alone(noise: bytes) -> None:
    old = record(field("n", {"type": "array", "items": "null"}), field("b", "string"))
    good = framed(WRITER, old, {"n": [None], "b": "x"})
    found = decode(record(field("b", "string")), {WRITER: old}, [good, good[:5] + noise, good])
    assert [row and row["b"] for row in found.array.to_pylist()][::2] == ["x", "x"]
    assert pickle.loads(pickle.dumps(found.faults)) == found.faults
