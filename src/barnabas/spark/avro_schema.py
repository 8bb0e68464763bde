"""Avro schemas: from JSON to a tree of nodes with their Arrow types, and on to the table that the decoder runs.

The types are those of Spark's own from_avro: enums become strings, a union of null and one other type that type, a
union of int and long a long, of float and double a double, and any other union a struct ``member0``, ``member1`` … of
which one is set. A type that contains itself has no Arrow type and is refused.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import pyarrow as pa

MAX_DEPTH = 64
MAX_NODES = 10_000
"""Named types that are used many times are laid out each time, which may grow without end."""

MAX_PRECISION = 38
_NULL, _NOTHING = "null", -1


class AvroSchemaError(ValueError):
    """The schema is no Avro schema, or one that columns cannot hold."""


class Kind(IntEnum):
    """What a node reads and which column it fills. The numbers are shared with ``_avro_decode.h``."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    MILLIS = 4
    FLOAT = 5
    DOUBLE = 6
    BYTES = 7
    STRING = 8
    FIXED = 9
    UUID = 10
    ENUM = 11
    DECIMAL = 12
    DECIMAL_FIXED = 13
    RECORD = 14
    ARRAY = 15
    MAP = 16
    OPTIONAL = 17
    UNION = 18
    ANY_LONG = 19
    ANY_DOUBLE = 20


@dataclass(slots=True, kw_only=True)
class Node:
    kind: Kind
    arrow: pa.DataType
    path: str
    """For messages: the field's name with those around it."""
    a: int = 0
    """FIXED: the size. ENUM: its first symbol in the table. Unions: the branch of null, or -1."""
    b: int = 0
    """ENUM: the number of symbols. DECIMAL: the precision. Unions: the number of branches."""
    wide: int = 0
    """ANY_LONG and ANY_DOUBLE: a bit for each branch of the wider type."""
    children: list[Node] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    index: int = -1
    """Its place in the table."""


class Program(NamedTuple):
    """The table: for each node kind, a, b, first child, number of children; children; ends of symbols; symbols."""

    nodes: list[Node]
    table: bytes
    children: bytes
    symbol_ends: bytes
    symbols: bytes


def parse(schema: str) -> Node:
    """The tree of a record's schema. Raises AvroSchemaError."""
    try:
        given = json.loads(schema)
    except ValueError as error:
        raise AvroSchemaError(f"the Avro schema is no JSON: {error}") from None
    if not isinstance(given, dict) or given.get("type") != "record":
        raise AvroSchemaError("the Avro schema is no record: columns need fields")
    return _Parser().node(given, "", "", 0)


def compile_program(root: Node) -> Program:
    nodes = list(_preorder(root))
    for index, node in enumerate(nodes):
        node.index = index
    table, children, ends = array("i"), array("i"), array("i")
    symbols = bytearray()
    for node in nodes:
        first = node.wide if node.kind in (Kind.ANY_LONG, Kind.ANY_DOUBLE) else len(children)
        if node.kind is Kind.ENUM:
            node.a = len(ends)
            for symbol in node.symbols:
                symbols += symbol.encode()
                ends.append(len(symbols))
        table.extend((node.kind, node.a, node.b, first, len(node.children)))
        children.extend(child.index for child in node.children)
    return Program(nodes, table.tobytes(), children.tobytes(), ends.tobytes(), bytes(symbols))


def _preorder(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _preorder(child)


_PRIMITIVES: Mapping[str, tuple[Kind, pa.DataType]] = {
    "null": (Kind.NULL, pa.null()),
    "boolean": (Kind.BOOLEAN, pa.bool_()),
    "int": (Kind.INT, pa.int32()),
    "long": (Kind.LONG, pa.int64()),
    "float": (Kind.FLOAT, pa.float32()),
    "double": (Kind.DOUBLE, pa.float64()),
    "bytes": (Kind.BYTES, pa.binary()),
    "string": (Kind.STRING, pa.string()),
}

_LOGICAL: Mapping[tuple[str, str], tuple[Kind, pa.DataType]] = {
    ("int", "date"): (Kind.INT, pa.date32()),
    ("long", "timestamp-millis"): (Kind.MILLIS, pa.timestamp("us", tz="UTC")),
    ("long", "timestamp-micros"): (Kind.LONG, pa.timestamp("us", tz="UTC")),
    ("long", "local-timestamp-millis"): (Kind.MILLIS, pa.timestamp("us")),
    ("long", "local-timestamp-micros"): (Kind.LONG, pa.timestamp("us")),
}


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._open: set[str] = set()
        self._count = 0

    def node(self, schema: Any, namespace: str, path: str, depth: int) -> Node:
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_NODES:
            raise AvroSchemaError(f"the Avro schema is too deep or too large at {path or 'its root'}")
        if isinstance(schema, list):
            return self._union(schema, namespace, path, depth)
        if isinstance(schema, str):
            return self._reference(schema, namespace, path, depth)
        if not isinstance(schema, dict) or "type" not in schema:
            raise AvroSchemaError(f"{path or 'the root'} of the Avro schema has no type: {schema!r}")
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, namespace, path, depth)
        if kind == "array":
            item = self.node(_need(schema, "items", path), namespace, f"{path}[]", depth + 1)
            return Node(kind=Kind.ARRAY, arrow=pa.list_(pa.field("element", item.arrow)), path=path, children=[item])
        if kind == "map":
            value = self.node(_need(schema, "values", path), namespace, f"{path}{{}}", depth + 1)
            key = Node(kind=Kind.STRING, arrow=pa.string(), path=f"{path} (key)")
            return Node(kind=Kind.MAP, arrow=pa.map_(pa.string(), value.arrow), path=path, children=[key, value])
        if isinstance(kind, (dict, list)):
            return self.node(kind, namespace, path, depth + 1)
        return self._logical(schema, kind, path) or self._reference(kind, namespace, path, depth)

    def _reference(self, name: str, namespace: str, path: str, depth: int) -> Node:
        if name in _PRIMITIVES:
            kind, arrow = _PRIMITIVES[name]
            return Node(kind=kind, arrow=arrow, path=path)
        full = _full_name(name, namespace)
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise AvroSchemaError(f"{path}: the Avro schema has no type {name!r}")
        return self._definition(*found, path, depth)

    def _definition(self, schema: dict[str, Any], namespace: str, path: str, depth: int) -> Node:
        full = _full_name(_need(schema, "name", path), schema.get("namespace", namespace))
        if full in self._open:
            raise AvroSchemaError(f"{path}: the type {full} contains itself, which no column can hold")
        self._named[full] = schema, namespace
        if schema["type"] == "enum":
            symbols = [str(symbol) for symbol in _need(schema, "symbols", path)]
            return Node(kind=Kind.ENUM, arrow=pa.string(), path=path, b=len(symbols), symbols=symbols)
        if schema["type"] == "fixed":
            return self._fixed(schema, path)
        self._open.add(full)
        inner = full.rpartition(".")[0]
        children, names = [], []
        for each in _need(schema, "fields", path):
            name = str(_need(each, "name", path))
            names.append(name)
            inner_path = f"{path}.{name}" if path else name
            children.append(self.node(_need(each, "type", inner_path), inner, inner_path, depth + 1))
        self._open.discard(full)
        if len(set(names)) < len(names):
            raise AvroSchemaError(f"{path or full}: two fields of one name")
        return Node(kind=Kind.RECORD, arrow=_struct_of(names, children), path=path, children=children, names=names)

    def _fixed(self, schema: dict[str, Any], path: str) -> Node:
        size = _need(schema, "size", path)
        if not isinstance(size, int) or not 0 <= size < 2**31:
            raise AvroSchemaError(f"{path}: the size of a fixed is {size!r}")
        if (decimal := _decimal(schema)) is not None and decimal.precision <= _digits(size):
            return Node(kind=Kind.DECIMAL_FIXED, arrow=decimal, path=path, a=size, b=decimal.precision)
        if schema.get("logicalType") == "uuid" and size == 16:
            return Node(kind=Kind.UUID, arrow=pa.string(), path=path, a=size)
        return Node(kind=Kind.FIXED, arrow=pa.binary(), path=path, a=size)

    def _logical(self, schema: dict[str, Any], kind: str, path: str) -> Node | None:
        """None where there is no logical type, or one that nobody knows: then the plain type counts."""
        if kind == "bytes" and (decimal := _decimal(schema)) is not None:
            return Node(kind=Kind.DECIMAL, arrow=decimal, path=path, b=decimal.precision)
        found = _LOGICAL.get((kind, str(schema.get("logicalType"))))
        return None if found is None else Node(kind=found[0], arrow=found[1], path=path)

    def _union(self, branches: list[Any], namespace: str, path: str, depth: int) -> Node:
        null = branches.index(_NULL) if _NULL in branches else _NOTHING
        others = [branch for branch in branches if branch != _NULL]
        if not others:
            raise AvroSchemaError(f"{path}: a union of nothing but null")
        if any(isinstance(_unwrapped(other), list) for other in others):
            raise AvroSchemaError(f"{path}: a union within a union")
        if len(others) == 1:
            only = self.node(others[0], namespace, path, depth + 1)
            return Node(kind=Kind.OPTIONAL, arrow=only.arrow, path=path, a=null, b=len(branches), children=[only])
        plain = {other for other in others if isinstance(other, str)}
        for kind, arrow, wanted in (
            (Kind.ANY_LONG, pa.int64(), {"int", "long"}),
            (Kind.ANY_DOUBLE, pa.float64(), {"float", "double"}),
        ):
            if plain == wanted and len(others) == 2:
                wide = sum(1 << i for i, branch in enumerate(branches) if branch in ("long", "double"))
                return Node(kind=kind, arrow=arrow, path=path, a=null, b=len(branches), wide=wide)
        children = [self.node(other, namespace, path, depth + 1) for other in others]
        names = [f"member{index}" for index in range(len(children))]
        struct = _struct_of(names, children)
        return Node(kind=Kind.UNION, arrow=struct, path=path, a=null, b=len(branches), children=children, names=names)


def _need(schema: Any, name: str, path: str) -> Any:
    if not isinstance(schema, dict) or name not in schema:
        raise AvroSchemaError(f"{path or 'the root'} of the Avro schema has no {name!r}")
    return schema[name]


def _unwrapped(schema: Any) -> Any:
    while isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
        schema = schema["type"]
    return schema


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _struct_of(names: list[str], children: list[Node]) -> pa.DataType:
    return pa.struct([pa.field(name, child.arrow) for name, child in zip(names, children, strict=True)])


def _decimal(schema: dict[str, Any]) -> pa.Decimal128Type | None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if schema.get("logicalType") != "decimal" or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return pa.decimal128(precision, scale) if 0 < precision <= MAX_PRECISION and 0 <= scale <= precision else None


def _digits(size: int) -> int:
    """The most decimal digits that so many bytes hold for sure."""
    return len(str(2 ** (8 * size - 1) - 1)) - 1 if 0 < size <= 64 else 0
