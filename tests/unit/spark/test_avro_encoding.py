"""Arrow to Avro: fastavro reads it back, faults are reported, and both codecs write the same bytes."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark import avro
from barnabas.spark.avro import AvroDecoder, AvroEncoder, AvroError, Reason
from barnabas.spark.avro_schema import AvroSchemaError
from tests.unit.spark.test_avro import ALL, ROW, as_column, encode, logical, record, schemas, value_of

fastavro = pytest.importorskip("fastavro")
needs_native = pytest.mark.skipif(not avro.NATIVE_AVAILABLE, reason="the extension was not built")


@pytest.fixture(params=[True, False], ids=["native", "fastavro"])
def codec(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param and not avro.NATIVE_AVAILABLE:
        pytest.skip("the extension was not built")
    before = avro.NATIVE
    avro.use(request.param)
    yield
    avro.use(before)


def written(schema: str, rows: list[Any], kind: pa.DataType | None = None, **named: Any) -> list[bytes | None]:
    encoder = AvroEncoder(schema, **named)
    array, faults = encoder.encode(pa.array(rows, kind or encoder.arrow_type))
    array.validate(full=True)
    assert not faults
    found: list[bytes | None] = array.to_pylist()
    return found


def read(schema: str, value: bytes | None) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value or b""), fastavro.parse_schema(json.loads(schema)), None)


@pytest.mark.usefixtures("codec")
class TestEncoding:
    def test_everything(self) -> None:
        columns = ROW | {"choice": {"member1": 2.5}, "counts": list(ROW["counts"].items())}
        first, null, second = written(ALL, [columns, None, columns])
        assert null is None
        assert first == second
        assert read(ALL, first) == ROW | {"id": UUID(ROW["id"])}

    def test_what_is_decoded_is_encoded_again(self) -> None:
        values = encode(
            ALL, ROW, ROW | {"tags": [], "optional_tags": None, "maybe": None, "choice": "text", "real": 1.0}
        )
        decoded = AvroDecoder(ALL).decode(pa.array([None, *values, None], pa.binary()))
        for part in (decoded.array, decoded.array.slice(1), decoded.array.slice(2, 1)):
            array, faults = AvroEncoder(ALL).encode(part)
            assert not faults
            again = AvroDecoder(ALL).decode(array)
            assert again.array.to_pylist() == part.to_pylist()

    def test_fixed_types(self) -> None:
        schema = record(
            d=logical("fixed", "decimal", name="D", size=6, precision=10, scale=3),
            u=logical("fixed", "uuid", name="U", size=16),
        )
        rows = [
            {"d": Decimal("-1234567.891"), "u": str(UUID(int=7))},
            {"d": Decimal("0.001"), "u": str(UUID(int=2**128 - 1))},
        ]
        decoded = AvroDecoder(schema).decode(pa.array(written(schema, rows), pa.binary()))
        assert decoded.array.to_pylist() == rows

    def test_decimals(self) -> None:
        schema = record(d=logical("bytes", "decimal", precision=38, scale=0))
        numbers = [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**38 - 1, 1 - 10**38]
        found = written(schema, [{"d": Decimal(number)} for number in numbers])
        assert [read(schema, value)["d"] for value in found] == numbers
        assert [len(value or b"") for value in found[:9]] == [2, 2, 2, 2, 3, 2, 3, 3, 3]

    def test_columns_are_found_by_name_and_cast(self) -> None:
        schema = record(a="long", b={"type": "record", "name": "B", "fields": [{"name": "c", "type": "string"}]})
        kind = pa.struct(
            [("extra", pa.int8()), ("b", pa.struct([("d", pa.int8()), ("c", pa.large_string())])), ("a", pa.int32())]
        )
        (value,) = written(schema, [{"extra": 1, "b": {"d": 2, "c": "x"}, "a": 5}], kind)
        assert read(schema, value) == {"a": 5, "b": {"c": "x"}}
        with pytest.raises(AvroSchemaError, match=r"field b\.c is missing"):
            written(
                schema, [{"a": 1, "b": {"x": 1}}], pa.struct([("a", pa.int64()), ("b", pa.struct([("x", pa.int8())]))])
            )
        with pytest.raises(AvroSchemaError, match="a is list"):
            written(record(a="int"), [{"a": [1]}], pa.struct([("a", pa.list_(pa.int32()))]))

    def test_schema_id(self) -> None:
        schema = record(a="int")
        assert written(schema, [{"a": 1}, None], schema_id=258) == [b"\x00\x00\x00\x01\x02\x02", None]

    def test_nothing(self) -> None:
        assert written(ALL, []) == []
        assert written(ALL, [None]) == [None]

    @pytest.mark.parametrize(
        ("kind", "value", "reason"),
        [
            ("int", None, Reason.NULL),
            ("string", None, Reason.NULL),
            (["int", "string"], None, Reason.NULL),
            (["int", "long"], None, Reason.NULL),
            ({"type": "array", "items": "int"}, [1, None], Reason.NULL),
            ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", Reason.ENUM),
            ({"type": "fixed", "name": "F", "size": 2}, b"abc", Reason.LENGTH),
            (logical("fixed", "uuid", name="U", size=16), "no uuid", Reason.UUID),
            (logical("fixed", "uuid", name="U", size=16), "g2345678-1234-5678-1234-567812345678", Reason.UUID),
            (logical("fixed", "uuid", name="U", size=16), "12345678-1234-5678-1234-56781234567", Reason.UUID),
        ],
    )
    def test_a_bad_row_costs_that_row_only(self, kind: Any, value: Any, reason: Reason) -> None:
        schema = record(before="string", field=kind)
        encoder = AvroEncoder(schema)
        rows = [{"before": "x", "field": value}, None, {"before": "y", "field": value}]
        array, faults = encoder.encode(pa.array(rows, encoder.arrow_type))
        assert array.to_pylist() == [None, None, None]
        assert [(fault.row, fault.reason, fault.path.split("[")[0]) for fault in faults] == [
            (0, reason, "field"),
            (2, reason, "field"),
        ]
        with pytest.raises(AvroError, match=r"^field field.*\(row 0 of its batch\)"):
            encoder.encode(pa.array(rows, encoder.arrow_type), stops_at_fault=True)


@needs_native
@given(schemas, st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_any_schema(schema: str, seed: int) -> None:
    """Both codecs write the same bytes, and what is read from them is what was given."""
    dice = random.Random(seed)
    fields = json.loads(schema)["fields"]
    rows = [{each["name"]: as_column(each["type"], value_of(dice, each["type"])) for each in fields} for _ in range(8)]
    for row in rows[:3]:
        row[dice.choice(fields)["name"]] = None
    answers = []
    before = avro.NATIVE
    for native in (True, False):
        avro.use(native)
        try:
            encoder = AvroEncoder(schema)
            given_rows = pa.array([*(_with_pairs(row) for row in rows), None], encoder.arrow_type).slice(1)
            answers.append(encoder.encode(given_rows))
        finally:
            avro.use(before)
    (native_array, native_faults), (other_array, other_faults) = answers
    assert native_faults == other_faults
    assert native_array.equals(other_array)
    bad = {fault.row for fault in native_faults}
    decoded = AvroDecoder(schema).decode(native_array)
    assert not decoded.faults
    found = decoded.array.to_pylist(maps_as_pydicts="strict")
    assert [row for n, row in enumerate(found[:-1]) if n not in bad] == [
        row for n, row in enumerate(rows[1:]) if n not in bad
    ]


def _with_pairs(value: Any) -> Any:
    """Maps as pairs, which alone pyarrow takes for its maps; records are dicts of other keys."""
    if isinstance(value, list):
        return [_with_pairs(item) for item in value]
    if isinstance(value, dict) and value and all(str(key).startswith("k") for key in value):
        return [(key, _with_pairs(item)) for key, item in value.items()]
    if isinstance(value, dict) and not value:
        return []
    return {key: _with_pairs(item) for key, item in value.items()} if isinstance(value, dict) else value


@needs_native
def test_damaged_memory_is_refused() -> None:
    """Nothing that Arrow makes looks like this; the encoder must not read beyond it all the same."""
    import barnabas.spark._avro as native

    dice = random.Random(11)
    program = AvroEncoder(ALL)._program
    codec = native.Codec(*program[1:])
    for _ in range(3000):
        sources: list[Any] = []
        for node in program.nodes:
            numbers = b"".join(
                dice.choice([0, 0, 1, 2, 3, 9, -1, 2**31 - 1]).to_bytes(4, "little", signed=True) for _ in range(20)
            )
            valid = dice.choice([None, dice.randbytes(1)])
            data = dice.choice([None, dice.randbytes(dice.randint(0, 10))])
            given_column = (valid, numbers, data, dice.randint(0, 1), dice.randint(1, 4))
            sources.append(None if node.kind in (0, 17) else given_column)
        with contextlib.suppress(ValueError):
            codec.encode(dice.randint(0, 2), sources, b"")
