"""Avro to Arrow: as fastavro reads it, what is refused and why, and that both codecs agree."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark import avro
from barnabas.spark.avro import AvroDecoder, AvroError, Decoded, Reason
from barnabas.spark.avro_schema import AvroSchemaError

fastavro = pytest.importorskip("fastavro")
needs_native = pytest.mark.skipif(not avro.NATIVE_AVAILABLE, reason="the extension was not built")


@pytest.fixture(params=[True, False], ids=["native", "python"])
def codec(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param and not avro.NATIVE_AVAILABLE:
        pytest.skip("the extension was not built")
    before = avro.NATIVE
    avro.use(request.param)
    yield
    avro.use(before)


def record(**fields: Any) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Row", "namespace": "shop", "fields": listed})


def encode(schema: str, *rows: Any) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(schema))
    out = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        out.append(stream.getvalue())
    return out


def decode(schema: str, values: list[bytes | None], **named: Any) -> Decoded:
    decoded = AvroDecoder(schema, **named).decode(pa.array(values, pa.binary()))
    decoded.array.validate(full=True)
    assert len(decoded.array) == len(values)
    return decoded


def both(schema: str, values: list[bytes | None], **named: Any) -> Decoded:
    """What the codecs agree on."""
    answers = []
    before = avro.NATIVE
    for native in (True, False):
        avro.use(native)
        try:
            answers.append(decode(schema, values, **named))
        finally:
            avro.use(before)
    native, other = answers
    assert native.faults == other.faults
    assert repr(native.array.to_pylist()) == repr(other.array.to_pylist())  # NaN is not equal to itself
    return native


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


ALL = record(
    flag="boolean",
    small="int",
    large="long",
    single="float",
    double="double",
    raw="bytes",
    text="string",
    code={"type": "fixed", "name": "Code", "size": 3},
    colour={"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "blau"]},
    day=logical("int", "date"),
    at_ms=logical("long", "timestamp-millis"),
    at_us=logical("long", "timestamp-micros"),
    here=logical("long", "local-timestamp-micros"),
    price=logical("bytes", "decimal", precision=9, scale=2),
    id=logical("string", "uuid"),
    maybe=["null", "long"],
    maybe_last=["string", "null"],
    tags={"type": "array", "items": "string"},
    optional_tags=["null", {"type": "array", "items": ["null", "int"]}],
    counts={"type": "map", "values": "long"},
    inner={
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "x", "type": "int"}, {"name": "again", "type": ["null", "Colour"]}],
    },
    inners={"type": "array", "items": "Inner"},
    choice=["null", "string", "double", "Inner"],
    number=["int", "null", "long"],
    real=["double", "float"],
    nothing="null",
)

ROW = {
    "flag": True,
    "small": -5,
    "large": 2**40,
    "single": 1.5,
    "double": -2.25,
    "raw": b"\x00\xff",
    "text": "grüße",
    "code": b"abc",
    "colour": "blau",
    "day": date(2024, 2, 29),
    "at_ms": datetime(2024, 1, 1, 12, 0, 0, 123000, UTC),
    "at_us": datetime(2024, 1, 1, 12, 0, 0, 123456, UTC),
    "here": datetime(2024, 1, 1, 12),
    "price": Decimal("-1234567.89"),
    "id": "12345678-1234-5678-1234-567812345678",
    "maybe": 7,
    "maybe_last": None,
    "tags": ["a", "", "c" * 200],
    "optional_tags": [1, None, 3],
    "counts": {"a": 1, "b": -2},
    "inner": {"x": 1, "again": "RED"},
    "inners": [{"x": 2, "again": None}, {"x": 3, "again": "GREEN"}],
    "choice": 2.5,
    "number": 2**33,
    "real": 0.5,
    "nothing": None,
}


@pytest.mark.usefixtures("codec")
class TestTypes:
    def test_everything(self) -> None:
        other = ROW | {
            "flag": False,
            "price": Decimal("0.00"),
            "id": UUID(int=5),
            "maybe": None,
            "maybe_last": "z",
            "tags": [],
            "optional_tags": None,
            "counts": {},
            "inners": [],
            "choice": {"x": 9, "again": None},
            "number": None,
        }
        found = decode(ALL, [*encode(ALL, ROW), None, *encode(ALL, other, ROW)])
        assert not found.faults
        first, null, second, third = found.array.to_pylist(maps_as_pydicts="strict")
        members = {"member0": None, "member1": None, "member2": None}
        assert null is None
        assert first == third == ROW | {"choice": members | {"member1": 2.5}}
        changed = {"id": str(UUID(int=5)), "choice": members | {"member2": {"x": 9, "again": None}}}
        assert second == other | changed

    def test_fixed_as_decimal_and_uuid(self) -> None:
        schema = record(
            d=logical("fixed", "decimal", name="D", size=6, precision=10, scale=3),
            u=logical("fixed", "uuid", name="U", size=16),
        )
        rows = [{"d": Decimal("-1234567.891"), "u": UUID(int=7)}, {"d": Decimal("0.001"), "u": UUID(int=2**128 - 1)}]
        values = encode(
            record(d={"type": "fixed", "name": "D", "size": 6}, u={"type": "fixed", "name": "U", "size": 16}),
            *({"d": int(row["d"].scaleb(3)).to_bytes(6, "big", signed=True), "u": row["u"].bytes} for row in rows),
        )
        assert decode(schema, list(values)).array.to_pylist() == [row | {"u": str(row["u"])} for row in rows]

    def test_large_decimals(self) -> None:
        schema = record(d=logical("bytes", "decimal", precision=38, scale=10))
        rows = [{"d": Decimal(f"{sign}{'9' * 28}.{'9' * 10}")} for sign in ("", "-")] + [{"d": Decimal("1e-10")}]
        plain = record(d="bytes")
        numbers = [10**38 - 1, 1 - 10**38, 1]
        values = encode(plain, *({"d": number.to_bytes(20, "big", signed=True)} for number in numbers))
        assert decode(schema, list(values)).array.to_pylist() == rows
        too_large = encode(
            plain, {"d": (10**38).to_bytes(17, "big")}, {"d": (2**127).to_bytes(16, "big")}, {"d": bytes([1]) * 40}
        )
        assert [fault.reason for fault in decode(schema, list(too_large)).faults] == [Reason.DECIMAL] * 2 + [
            Reason.DECIMAL
        ]

    def test_blocks_with_their_size(self) -> None:
        """Writers may put a block's bytes before it, with a negative count, and use several blocks."""
        schema = record(a={"type": "array", "items": "int"})
        value = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"
        assert decode(schema, [value]).array.to_pylist() == [{"a": [1, 2, 3]}]

    def test_confluent_framing(self) -> None:
        schema = record(a="int")
        (value,) = encode(schema, {"a": 5})
        found = decode(
            schema, [b"\x00\x00\x00\x00\x09" + value, value, b"\x01\x00\x00\x00\x09" + value], is_framed=True
        )
        assert found.array.to_pylist() == [{"a": 5}, None, None]
        assert [fault.reason for fault in found.faults] == [Reason.NOT_FRAMED] * 2
        assert "no schema id in front" in str(found.faults[0])

    def test_slices_and_large_columns(self) -> None:
        schema = record(a="int", b="string")
        values: list[bytes | None] = [*encode(schema, *({"a": n, "b": str(n)} for n in range(50))), None]
        column = pa.array(values, pa.large_binary()).slice(20, 31)
        found = AvroDecoder(schema).decode(column)
        assert found.array.to_pylist() == [{"a": n, "b": str(n)} for n in range(20, 50)] + [None]
        assert len(AvroDecoder(schema).decode(column.slice(0, 0)).array) == 0

    def test_logical_types_that_nobody_knows_are_their_plain_types(self) -> None:
        schema = record(
            a=logical("int", "time-millis"), b=logical("bytes", "decimal", precision=99), c=logical("string", "?")
        )
        kinds = [field.type for field in AvroDecoder(schema).arrow_type]
        assert kinds == [pa.int32(), pa.binary(), pa.string()]


@pytest.mark.usefixtures("codec")
class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "value", "reason"),
        [
            ("string", b"\x08abc", Reason.SHORT),
            ("string", b"", Reason.VARINT),
            ("string", b"\x01", Reason.LENGTH),
            ("string", b"\x02\xff", Reason.UTF8),
            ("long", b"\x80", Reason.VARINT),
            ("long", b"\xff" * 10, Reason.VARINT),
            ("int", b"\xfe\xff\xff\xff\x7f", Reason.VARINT),
            ("boolean", b"\x02", Reason.BOOLEAN),
            ("float", b"\x00\x00\x00", Reason.SHORT),
            ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", Reason.ENUM),
            (["null", "int"], b"\x04", Reason.BRANCH),
            (["int", "string"], b"\x04", Reason.BRANCH),
            (logical("bytes", "decimal", precision=2), b"\x02\x64", Reason.DECIMAL),
            (logical("long", "timestamp-millis"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", Reason.TIMESTAMP),
            ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00", Reason.TOO_MANY),
            ("int", b"\x02\x02", Reason.TRAILING),
        ],
    )
    def test_a_bad_row_costs_that_row_only(self, kind: Any, value: bytes, reason: Reason) -> None:
        schema = record(n="int", field=kind)
        found = decode(schema, [b"\x02" + value, None, b"\x02" + value])
        assert found.array.to_pylist() == [None, None, None]
        assert [fault.row for fault in found.faults] == [0, 2]
        reasons = {fault.reason for fault in found.faults}
        assert reasons == {reason}
        if reason is not Reason.TRAILING:
            assert str(found.faults[0]).startswith("field field: ")

    def test_columns_are_whole_around_bad_rows(self) -> None:
        good = encode(ALL, *(ROW | {"small": n, "tags": ["t"] * (n % 4)} for n in range(40)))
        cut = [value[: len(value) * (n % 10 + 1) // 12] for n, value in enumerate(good)]
        mixed = [value for pair in zip(good, cut, strict=True) for value in pair]
        found = decode(ALL, list(mixed))
        rows = found.array.to_pylist()
        assert [row["small"] for row in rows[::2]] == list(range(40))
        assert [len(row["tags"]) for row in rows[::2]] == [n % 4 for n in range(40)]
        assert rows[1::2] == [None] * 40
        assert [fault.row for fault in found.faults] == list(range(1, 80, 2))

    def test_the_first_fault_may_stop_it(self) -> None:
        decoder = AvroDecoder(record(a="int"))
        with pytest.raises(AvroError, match=r"field a: no number.*\(byte 0 of the value ff80\)"):
            decoder.decode(pa.array([b"\x02", b"\xff\x80"], pa.binary()), stops_at_fault=True)
        assert decoder.decode(pa.array([b"\x02"], pa.binary())).array.to_pylist() == [{"a": 1}]


class TestSchemas:
    @pytest.mark.parametrize(
        ("schema", "text"),
        [
            ("{", "no JSON"),
            ('"string"', "no record"),
            (record(a="strin"), "a: the Avro schema has no type 'strin'"),
            (record(a=["null"]), "nothing but null"),
            (record(a={"type": "array"}), "has no 'items'"),
            (record(next=["null", "Row"]), "shop.Row contains itself"),
            (json.dumps({"type": "record", "name": "R"}), "has no 'fields'"),
            (record(a={"type": "fixed", "name": "F", "size": -1}), "size of a fixed"),
        ],
    )
    def test_refusals(self, schema: str, text: str) -> None:
        with pytest.raises(AvroSchemaError, match=text):
            AvroDecoder(schema)

    def test_deep_schemas(self) -> None:
        kind: Any = "int"
        for _ in range(100):
            kind = {"type": "array", "items": kind}
        with pytest.raises(AvroSchemaError, match="too deep"):
            AvroDecoder(record(a=kind))


TAGGED = ["int", "string", "null"]
names = st.sampled_from(["a", "b", "c", "d"])
primitives = st.sampled_from(["boolean", "int", "long", "float", "double", "bytes", "string", "null"])
kinds = st.recursive(
    primitives,
    lambda inner: st.one_of(
        st.builds(lambda kind: {"type": "array", "items": kind}, inner),
        st.builds(lambda kind: {"type": "map", "values": kind}, inner),
        st.builds(
            lambda kind: ["null", kind], inner.filter(lambda kind: kind != "null" and not isinstance(kind, list))
        ),
        st.just(TAGGED),
        st.just(["float", "double"]),
        st.just(["long", "null", "int"]),
    ),
    max_leaves=4,
)
schemas = st.dictionaries(names, kinds, min_size=1).map(lambda fields: record(**fields))


def value_of(dice: random.Random, kind: Any) -> Any:
    """A value that the type can hold."""
    if isinstance(kind, list):
        branch = dice.choice(kind)
        return value_of(dice, branch)
    if isinstance(kind, dict) and kind["type"] == "array":
        return [value_of(dice, kind["items"]) for _ in range(dice.randint(0, 3))]
    if isinstance(kind, dict):
        return {f"k{i}": value_of(dice, kind["values"]) for i in range(dice.randint(0, 3))}
    return {
        "boolean": lambda: dice.random() < 0.5,
        "int": lambda: dice.randint(-(2**31), 2**31 - 1),
        "long": lambda: dice.randint(-(2**63), 2**63 - 1),
        "float": lambda: float(dice.randint(-1000, 1000)),
        "double": dice.random,
        "bytes": lambda: dice.randbytes(dice.randint(0, 5)),
        "string": lambda: "é" * dice.randint(0, 3),
        "null": lambda: None,
    }[kind]()


def as_column(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if kind == TAGGED:
        return {
            "member0": value if isinstance(value, int) else None,
            "member1": value if isinstance(value, str) else None,
        }
    if isinstance(kind, list) and kind[0] == "null":
        return as_column(kind[1], value)
    if isinstance(kind, dict) and kind["type"] == "array":
        return [as_column(kind["items"], item) for item in value]
    if isinstance(kind, dict):
        return {key: as_column(kind["values"], item) for key, item in value.items()}
    return value


@needs_native
@given(schemas, st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_any_schema(schema: str, seed: int) -> None:
    """Right values are read as they were written; changed ones are refused by both."""
    dice = random.Random(seed)
    fields = json.loads(schema)["fields"]
    rows = [{field["name"]: value_of(dice, field["type"]) for field in fields} for _ in range(8)]
    values: list[bytes | None] = [*encode(schema, *rows), None]
    found = both(schema, values)
    assert not found.faults
    for row, made in zip(rows, found.array.to_pylist(maps_as_pydicts="strict"), strict=False):
        for field in fields:
            assert made[field["name"]] == as_column(field["type"], row[field["name"]])
    changed = []
    for value in values * 4:
        damaged = bytearray(value or b"")
        for _ in range(dice.randint(0, 2)):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        changed.append(bytes(damaged[: dice.choice([None, dice.randint(0, len(damaged))])]))
    both(schema, list(changed))


@needs_native
@given(st.lists(st.binary(max_size=60), max_size=20))
@settings(deadline=None)
def test_any_bytes(values: list[bytes]) -> None:
    both(ALL, list(values))


@needs_native
def test_damaged_programs_are_refused() -> None:
    import barnabas.spark._avro as native

    dice = random.Random(3)
    for _ in range(500):
        program = AvroDecoder(ALL)._program
        table = bytearray(program.table)
        table[dice.randrange(len(table))] = dice.randrange(256)
        with contextlib.suppress(ValueError):
            native.Codec(bytes(table), program.children, program.symbol_ends, program.symbols)
