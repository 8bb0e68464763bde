"""Arrow structs to Avro values by a given schema: the way back of ``avro``.

Columns are found by the names of the schema's fields and cast to its types. A row that the schema cannot hold, for a
null where it has none or a symbol that it does not know, becomes null and is told of. What writes exists twice, in
``_avro.c`` and here in Python; ``avro.NATIVE`` tells which is in force.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from struct import Struct
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

from barnabas.spark import avro
from barnabas.spark.avro import AvroError, Fault, RawFault, Reason
from barnabas.spark.avro_schema import AvroSchemaError, Kind, Node, compile_program, parse

_EPOCH, _EPOCH_HERE, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1), date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=60)
_FLOAT, _DOUBLE, _SCHEMA_ID = Struct("<f"), Struct("<d"), Struct(">bI")

Write: TypeAlias = Callable[[bytearray, Any], None]
_Source: TypeAlias = tuple[Any, Any, Any, int, int] | None


class AvroEncoder:
    def __init__(self, schema: str, *, schema_id: int | None = None) -> None:
        """``schema_id`` is put before each value, as Confluent's registry has it. Raises AvroSchemaError."""
        self._root = parse(schema)
        self._program = compile_program(self._root)
        self._prefix = b"" if schema_id is None else _SCHEMA_ID.pack(0, schema_id)
        self._codec = avro.new_codec(self._program)
        self._write = None if self._codec is not None else _writer(self._root)

    @property
    def arrow_type(self) -> pa.StructType:
        return self._root.arrow

    def encode(self, structs: pa.StructArray, *, stops_at_fault: bool = False) -> tuple[pa.Array, list[Fault]]:
        """A binary column, null where the struct is null or at fault. Raises AvroError for the first, where asked."""
        fitted = _fitted(structs, self._root)
        if self._codec is not None:
            array, raw = self._encode_native(fitted)
        else:
            array, raw = self._encode_python(fitted)
        faults = [self._fault(fault) for fault in raw]
        if faults and stops_at_fault:
            raise AvroError(str(faults[0]))
        return array, faults

    def _encode_native(self, structs: pa.StructArray) -> tuple[pa.Array, list[RawFault]]:
        sources: list[_Source] = [None] * len(self._program.nodes)
        _collect(structs, self._root, sources)
        null_count, *memory, faults = self._codec.encode(len(structs), sources, self._prefix)
        valid, offsets, data = map(pa.py_buffer, memory)
        buffers = [valid if null_count else None, offsets, data]
        return pa.Array.from_buffers(pa.binary(), len(structs), buffers, null_count=null_count), faults

    def _encode_python(self, structs: pa.StructArray) -> tuple[pa.Array, list[RawFault]]:
        values: list[bytes | None] = []
        faults: list[RawFault] = []
        for row, struct in enumerate(structs.to_pylist()):
            out = bytearray(self._prefix)
            try:
                if struct is not None and self._write is not None:
                    self._write(out, struct)
                values.append(None if struct is None else bytes(out))
            except _Refused as refused:
                faults.append((row, *refused.args, 0))
                values.append(None)
        return pa.array(values, pa.binary()), faults

    def _fault(self, raw: RawFault) -> Fault:
        row, reason, node, _ = raw
        return Fault(row, Reason(reason), self._program.nodes[node].path, f"row {row} of its batch")


# Arrow's columns, as the schema wants them


def _fitted(array: pa.Array, node: Node) -> pa.Array:
    """The columns that the schema names, in its order and types. Raises AvroSchemaError where one is missing."""
    if node.kind is Kind.OPTIONAL:
        return _fitted(array, node.children[0])
    if array.type == node.arrow or node.kind not in (Kind.RECORD, Kind.UNION):
        return _cast(array, node)
    if not pa.types.is_struct(array.type):
        raise AvroSchemaError(f"{node.path or 'the column'} is {array.type}: a struct is right")
    missing = [name for name in node.names if array.type.get_field_index(name) < 0]
    if missing:
        within = f"{node.path}." if node.path else ""
        raise AvroSchemaError(f"the schema's field {within}{missing[0]} is missing in the column")
    fields = [array.field(array.type.get_field_index(name)) for name in node.names]
    made = [_fitted(field, child) for field, child in zip(fields, node.children, strict=True)]
    return pa.StructArray.from_arrays(made, fields=list(node.arrow), mask=array.is_null() if array.null_count else None)


def _cast(array: pa.Array, node: Node) -> pa.Array:
    if array.type == node.arrow:
        return array
    try:
        return array.cast(node.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise AvroSchemaError(f"{node.path} is {array.type}, which does not become {node.arrow}: {error}") from None


def _collect(array: pa.Array, node: Node, sources: list[_Source]) -> None:
    """The memory of each node's column."""
    if node.kind is Kind.OPTIONAL:
        _collect(array, node.children[0], sources)
        return
    if node.kind is Kind.NULL:
        return
    memory: list[Any] = array.buffers()[: 3 if node.arrow in (pa.string(), pa.binary()) else 2]
    valid, *buffers = memory
    if node.kind in (Kind.RECORD, Kind.UNION):
        buffers, children = [], [array.field(index) for index in range(len(node.children))]
    elif node.kind is Kind.MAP:
        children = [array.keys, array.items]
    else:
        children = [array.values] if node.kind is Kind.ARRAY else []
    numbers, data, *_ = [*buffers, None, None]
    # Arrow leaves the offsets of a column without rows out.
    numbers = bytes(4) if numbers is None and not len(array) else numbers
    sources[node.index] = valid if array.null_count else None, numbers, data, array.offset, len(array)
    for child, inner in zip(node.children, children, strict=True):
        _collect(inner, child, sources)


# The twin


class _Refused(Exception):
    """A reason and the node."""


def _writer(node: Node) -> Write:
    made = _WRITERS[node.kind](node)
    if node.kind in (Kind.NULL, Kind.OPTIONAL, Kind.UNION, Kind.ANY_LONG, Kind.ANY_DOUBLE):
        return made

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            raise _Refused(Reason.NULL, node.index)
        made(out, value)

    return write


def _write_long(out: bytearray, number: int) -> None:
    raw = (number << 1) ^ (number >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _write_nothing(_node: Node) -> Write:
    return lambda _out, _value: None


def _write_boolean(_node: Node) -> Write:
    return lambda out, value: out.append(bool(value))


def _write_number(node: Node) -> Write:
    divisor = 1000 if node.kind is Kind.MILLIS else 1
    return lambda out, value: _write_long(out, _number(value) // divisor)


def _number(value: Any) -> int:
    """A time or day as Arrow counts it."""
    if isinstance(value, datetime):
        return (value - (_EPOCH_HERE if value.tzinfo is None else _EPOCH)) // _MICROSECOND
    return (value - _FIRST_DAY).days if isinstance(value, date) else int(value)


def _write_float(node: Node) -> Write:
    pack = (_FLOAT if node.kind is Kind.FLOAT else _DOUBLE).pack
    return lambda out, value: out.extend(pack(value))


def _write_sized(node: Node) -> Write:
    def write(out: bytearray, value: Any) -> None:
        data = value.encode() if node.kind is Kind.STRING else value
        _write_long(out, len(data))
        out += data

    return write


def _write_fixed(node: Node) -> Write:
    def write(out: bytearray, value: bytes) -> None:
        if len(value) != node.a:
            raise _Refused(Reason.LENGTH, node.index)
        out += value

    return write


def _write_uuid(node: Node) -> Write:
    def write(out: bytearray, value: str) -> None:
        parts = value.split("-")
        if [len(part) for part in parts] != [8, 4, 4, 4, 12] or not all(c in "0123456789abcdefABCDEF-" for c in value):
            raise _Refused(Reason.UUID, node.index)
        out += UUID(value).bytes

    return write


def _write_enum(node: Node) -> Write:
    places = {symbol: place for place, symbol in enumerate(node.symbols)}

    def write(out: bytearray, value: str) -> None:
        if value not in places:
            raise _Refused(Reason.ENUM, node.index)
        _write_long(out, places[value])

    return write


def _write_decimal(node: Node) -> Write:
    def write(out: bytearray, value: Decimal) -> None:
        number = int(value.scaleb(node.arrow.scale, _EXACT))
        size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
        if node.kind is Kind.DECIMAL:
            _write_long(out, size)
        elif size > node.a:
            raise _Refused(Reason.DECIMAL, node.index)
        out += number.to_bytes(size if node.kind is Kind.DECIMAL else node.a, "big", signed=True)

    return write


def _write_record(node: Node) -> Write:
    fields = [(name, _writer(child)) for name, child in zip(node.names, node.children, strict=True)]

    def write(out: bytearray, value: dict[str, Any]) -> None:
        for name, write_field in fields:
            write_field(out, value[name])

    return write


def _write_items(node: Node) -> Write:
    writers = [_writer(child) for child in node.children]

    def write(out: bytearray, value: list[Any]) -> None:
        if value:
            _write_long(out, len(value))
        for item in value:
            for write_part, part in zip(writers, item if node.kind is Kind.MAP else (item,), strict=True):
                write_part(out, part)
        out.append(0)

    return write


def _write_union(node: Node) -> Write:
    writers = [_writer(child) for child in node.children]

    def write(out: bytearray, value: Any) -> None:
        members = [value] if node.kind is Kind.OPTIONAL else [(value or {}).get(name) for name in node.names]
        for place, member in enumerate(members):
            if member is not None:
                _write_long(out, place + (0 <= node.a <= place))
                writers[place](out, member)
                return
        _write_null(out, node)

    return write


def _write_any(node: Node) -> Write:
    branch = next(branch for branch in range(node.b) if node.wide >> branch & 1)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            _write_null(out, node)
            return
        _write_long(out, branch)
        if node.kind is Kind.ANY_LONG:
            _write_long(out, value)
        else:
            out += _DOUBLE.pack(value)

    return write


def _write_null(out: bytearray, node: Node) -> None:
    if node.a < 0:
        raise _Refused(Reason.NULL, node.index)
    _write_long(out, node.a)


_WRITERS: dict[Kind, Callable[[Node], Write]] = {
    Kind.NULL: _write_nothing,
    Kind.BOOLEAN: _write_boolean,
    Kind.INT: _write_number,
    Kind.LONG: _write_number,
    Kind.MILLIS: _write_number,
    Kind.FLOAT: _write_float,
    Kind.DOUBLE: _write_float,
    Kind.BYTES: _write_sized,
    Kind.STRING: _write_sized,
    Kind.FIXED: _write_fixed,
    Kind.UUID: _write_uuid,
    Kind.ENUM: _write_enum,
    Kind.DECIMAL: _write_decimal,
    Kind.DECIMAL_FIXED: _write_decimal,
    Kind.RECORD: _write_record,
    Kind.ARRAY: _write_items,
    Kind.MAP: _write_items,
    Kind.OPTIONAL: _write_union,
    Kind.UNION: _write_union,
    Kind.ANY_LONG: _write_any,
    Kind.ANY_DOUBLE: _write_any,
}
