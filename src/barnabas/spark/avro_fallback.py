"""The Avro codec for where the extension was not built: ``fastavro`` reads and writes, this module fits its values.

fastavro gets a schema of the same bytes, made from the compiled one. Logical types are left out, texts are bytes and
enums are numbers, so that what they may hold is checked here. A map is an array of pairs, which keeps a key that comes
twice. Each branch of a union is a record of one field, which adds no bytes and names the branch. Faults that the native
codec finds and fastavro does not look for: a branch number below zero, a number of more than 64 bits, and the count
-2^63 of an array or map.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from barnabas.spark.avro import RawFault, Reason
from barnabas.spark.avro_schema import AvroSchemaError, Kind, Node

FRAME_BYTES = 5
NO_POSITION = -1

_MAX_MILLIS = (2**63 - 1) // 1000
_EPOCH, _EPOCH_HERE, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1), date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=60)
_UUID_PARTS = [8, 4, 4, 4, 12]

_PLAIN = {
    Kind.NULL: "null",
    Kind.INT: "long",
    Kind.LONG: "long",
    Kind.MILLIS: "long",
    Kind.ENUM: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.BYTES: "bytes",
    Kind.STRING: "bytes",
    Kind.DECIMAL: "bytes",
}
_UNIONS = (Kind.OPTIONAL, Kind.UNION, Kind.ANY_LONG, Kind.ANY_DOUBLE)

Convert: TypeAlias = Callable[[Any], Any]


class Refused(Exception):
    """The value is at fault: a reason and the node's number."""


class Codec:
    def __init__(self, root: Node) -> None:
        """Raises AvroSchemaError for arrays whose items take no bytes: a damaged count would have no end."""
        self._arrow = root.arrow
        self._schema = parse_schema(_plain(root))
        self._from_avro, self._to_avro = _reading(root), _writing(root)

    def decode(self, values: pa.Array, is_framed: bool, stops_at_fault: bool) -> tuple[pa.StructArray, list[RawFault]]:
        decoded: list[Any] = []
        faults: list[RawFault] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                decoded.append(None if value is None else self._read(value, is_framed))
            except Refused as refused:
                faults.append((row, *refused.args, NO_POSITION))
                decoded.append(None)
                if stops_at_fault:
                    break
        return pa.array(decoded, self._arrow), faults

    def encode(self, structs: pa.StructArray, prefix: bytes) -> tuple[pa.Array, list[RawFault]]:
        values: list[bytes | None] = []
        faults: list[RawFault] = []
        for row, struct in enumerate(structs.to_pylist()):
            try:
                values.append(None if struct is None else prefix + self._write(struct))
            except Refused as refused:
                faults.append((row, *refused.args, NO_POSITION))
                values.append(None)
        return pa.array(values, pa.binary()), faults

    def _read(self, value: bytes, is_framed: bool) -> Any:
        if is_framed and (len(value) < FRAME_BYTES or value[0]):
            raise Refused(Reason.NOT_FRAMED, 0)
        source = io.BytesIO(value)
        source.seek(FRAME_BYTES if is_framed else 0)
        try:
            found = schemaless_reader(source, self._schema, None, return_record_name=True)
        except (EOFError, IndexError, ValueError, OverflowError, MemoryError):
            raise Refused(Reason.UNREADABLE, 0) from None
        made = self._from_avro(found)
        if source.tell() != len(value):
            raise Refused(Reason.TRAILING, 0)
        return made

    def _write(self, struct: Any) -> bytes:
        target = io.BytesIO()
        schemaless_writer(target, self._schema, self._to_avro(struct))
        return target.getvalue()


# The schema for fastavro


def _plain(node: Node) -> Any:
    name = f"n{node.index}"
    if node.kind in _UNIONS:
        kinds = iter(_branches(node))
        return ["null" if branch == node.a else _record(*next(kinds)) for branch in range(node.b)]
    if node.kind is Kind.RECORD:
        fields = [{"name": f"f{place}", "type": _plain(child)} for place, child in enumerate(node.children)]
        return {"type": "record", "name": name, "fields": fields}
    if node.kind is Kind.ARRAY:
        if _is_empty(node.children[0]):
            raise AvroSchemaError(f"{node.path}: arrays whose items take no bytes need the native Avro codec")
        return {"type": "array", "items": _plain(node.children[0])}
    if node.kind is Kind.MAP:
        fields = [{"name": part, "type": _plain(child)} for part, child in zip("kv", node.children, strict=True)]
        return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}}
    if node.kind in _PLAIN:
        return _PLAIN[node.kind]
    return {"type": "fixed", "name": name, "size": 1 if node.kind is Kind.BOOLEAN else node.a}


def _record(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "v", "type": kind}]}


def _branches(node: Node) -> list[tuple[str, Any]]:
    """Names and types of a union's branches, but for null."""
    if node.kind is Kind.ANY_LONG:
        kinds: list[Any] = ["long"] * node.b
    elif node.kind is Kind.ANY_DOUBLE:
        kinds = ["double" if node.wide >> branch & 1 else "float" for branch in range(node.b)]
    else:
        return [(_branch_name(node, place), _plain(child)) for place, child in enumerate(node.children)]
    others = [branch for branch in range(node.b) if branch != node.a]
    return [(_branch_name(node, place), kinds[branch]) for place, branch in enumerate(others)]


def _branch_name(node: Node, place: int) -> str:
    return f"n{node.index}_{place}"


def _is_empty(node: Node) -> bool:
    if node.kind is Kind.RECORD:
        return all(map(_is_empty, node.children))
    return node.kind is Kind.NULL or (node.kind is Kind.FIXED and node.a == 0)


def _fields(node: Node, children: list[Convert]) -> list[tuple[str, str, Convert]]:
    """A record's fields: the name in the schema for fastavro, their own, and what converts them."""
    return [(f"f{place}", name, child) for place, (name, child) in enumerate(zip(node.names, children, strict=True))]


# From fastavro's values to those that pyarrow takes


def _reading(node: Node) -> Convert:
    if node.kind in (Kind.OPTIONAL, Kind.UNION):
        return _reading_union(node)
    if node.kind in (Kind.ANY_LONG, Kind.ANY_DOUBLE):
        return lambda value: None if value is None else value[1]["v"]
    children = [_reading(child) for child in node.children]
    if node.kind is Kind.RECORD:
        fields = _fields(node, children)
        return lambda value: {name: child(value[field]) for field, name, child in fields}
    if node.kind is Kind.ARRAY:
        return lambda value: [children[0](item) for item in value]
    if node.kind is Kind.MAP:
        return lambda value: [(children[0](item["k"]), children[1](item["v"])) for item in value]
    convert = _READING.get(node.kind)
    return (lambda value: value) if convert is None else lambda value: convert(node, value)


def _reading_union(node: Node) -> Convert:
    children = [_reading(child) for child in node.children]

    def read(value: Any) -> Any:
        if value is None:
            return None
        place = int(value[0].rpartition("_")[2])
        made = children[place](value[1]["v"])
        return made if node.kind is Kind.OPTIONAL else {node.names[place]: made}

    return read


def _within(node: Node, value: int, low: int, high: int, reason: Reason) -> int:
    if not low <= value <= high:
        raise Refused(reason, node.index)
    return value


def _read_boolean(node: Node, value: bytes) -> bool:
    return _within(node, value[0], 0, 1, Reason.BOOLEAN) == 1


def _read_text(node: Node, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Refused(Reason.UTF8, node.index) from None


def _read_decimal(node: Node, value: bytes) -> Decimal:
    limit = 10**node.b - 1
    number = _within(node, int.from_bytes(value, "big", signed=True), -limit, limit, Reason.DECIMAL)
    return Decimal(number).scaleb(-node.arrow.scale, _EXACT)


_READING: dict[Kind, Callable[[Node, Any], Any]] = {
    Kind.BOOLEAN: _read_boolean,
    Kind.INT: lambda node, value: _within(node, value, -(2**31), 2**31 - 1, Reason.VARINT),
    Kind.MILLIS: lambda node, value: _within(node, value, -_MAX_MILLIS, _MAX_MILLIS, Reason.TIMESTAMP) * 1000,
    Kind.ENUM: lambda node, value: node.symbols[_within(node, value, 0, node.b - 1, Reason.ENUM)],
    Kind.STRING: _read_text,
    Kind.DECIMAL: _read_decimal,
    Kind.DECIMAL_FIXED: _read_decimal,
    Kind.UUID: lambda _node, value: str(UUID(bytes=value)),
}


# From Arrow's values to those that fastavro takes


def _writing(node: Node) -> Convert:
    convert = _writing_union(node) if node.kind in _UNIONS else _writing_value(node)
    if node.kind is Kind.NULL:
        return lambda _value: None

    def write(value: Any) -> Any:
        if value is None and (node.kind not in _UNIONS or node.a < 0):
            raise Refused(Reason.NULL, node.index)
        return convert(value)

    return write


def _writing_union(node: Node) -> Convert:
    children = [_writing(child) for child in node.children]
    if not children:
        wide = next(branch for branch in range(node.b) if node.wide >> branch & 1)
        name = _branch_name(node, wide - (0 <= node.a < wide))
        return lambda value: None if value is None else (name, {"v": value})

    def write(value: Any) -> Any:
        members = [value] if node.kind is Kind.OPTIONAL else [(value or {}).get(name) for name in node.names]
        for place, member in enumerate(members):
            if member is not None:
                return _branch_name(node, place), {"v": children[place](member)}
        if node.a < 0:
            raise Refused(Reason.NULL, node.index)
        return None

    return write


def _writing_value(node: Node) -> Convert:
    children = [_writing(child) for child in node.children]
    if node.kind is Kind.RECORD:
        fields = _fields(node, children)
        return lambda value: {field: child(value[name]) for field, name, child in fields}
    if node.kind is Kind.ARRAY:
        return lambda value: [children[0](item) for item in value]
    if node.kind is Kind.MAP:
        return lambda value: [{"k": children[0](key), "v": children[1](item)} for key, item in value]
    convert = _WRITING.get(node.kind)
    return (lambda value: value) if convert is None else lambda value: convert(node, value)


def _write_number(node: Node, value: Any) -> int:
    """A time or day as Arrow counts it."""
    if isinstance(value, datetime):
        value = (value - (_EPOCH_HERE if value.tzinfo is None else _EPOCH)) // _MICROSECOND
    elif isinstance(value, date):
        value = (value - _FIRST_DAY).days
    return int(value) // 1000 if node.kind is Kind.MILLIS else int(value)


def _write_enum(node: Node, value: str) -> int:
    if value not in node.symbols:
        raise Refused(Reason.ENUM, node.index)
    return node.symbols.index(value)


def _write_fixed(node: Node, value: bytes) -> bytes:
    _within(node, len(value), node.a, node.a, Reason.LENGTH)
    return value


def _write_decimal(node: Node, value: Decimal) -> bytes:
    number = int(value.scaleb(node.arrow.scale, _EXACT))
    size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
    if node.kind is Kind.DECIMAL_FIXED:
        _within(node, size, 0, node.a, Reason.DECIMAL)
        size = node.a
    return number.to_bytes(size, "big", signed=True)


def _write_uuid(node: Node, value: str) -> bytes:
    is_uuid = [len(part) for part in value.split("-")] == _UUID_PARTS
    if not is_uuid or not all(c in "0123456789abcdefABCDEF-" for c in value):
        raise Refused(Reason.UUID, node.index)
    return UUID(value).bytes


_WRITING: dict[Kind, Callable[[Node, Any], Any]] = {
    Kind.BOOLEAN: lambda _node, value: bytes([value]),
    Kind.INT: _write_number,
    Kind.LONG: _write_number,
    Kind.MILLIS: _write_number,
    Kind.ENUM: _write_enum,
    Kind.STRING: lambda _node, value: value.encode(),
    Kind.FIXED: _write_fixed,
    Kind.DECIMAL: _write_decimal,
    Kind.DECIMAL_FIXED: _write_decimal,
    Kind.UUID: _write_uuid,
}
