"""The decoder of ``_avro.c`` in Python, for where the extension was not built: straight-line code, made for a schema.

A function is generated that reads one value field after field into plain Python values, without a look at the schema;
pyarrow makes columns of them.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

from barnabas.spark.avro_schema import Kind, Node

FREE_ITEMS = 1024
CONFLUENT_BYTES = 5

_SHORT, _VARINT, _LENGTH, _BOOLEAN, _UTF8, _ENUM, _BRANCH, _DECIMAL, _TIMESTAMP, _TOO_MANY = range(1, 11)
_TRAILING, _NOT_FRAMED = 12, 13

_MAX_INT64 = 2**63 - 1
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")

_Decode: TypeAlias = Callable[[bytes, int, int, list[int]], tuple[Any, int]]


class Bad(Exception):
    """The value is at fault: a reason, the node, and the position."""


class Runner:
    def __init__(self, root: Node) -> None:
        self._arrow = root.arrow
        self._decode: _Decode = _generate(root)

    def decode(
        self, values: pa.Array, is_confluent: bool, stops_at_fault: bool
    ) -> tuple[pa.StructArray, list[tuple[int, int, int, int]]]:
        decoded: list[Any] = []
        faults: list[tuple[int, int, int, int]] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                decoded.append(None if value is None else self._value(value, is_confluent))
            except Bad as bad:
                faults.append((row, *bad.args))
                decoded.append(None)
                if stops_at_fault:
                    break
        return pa.array(decoded, self._arrow), faults

    def _value(self, value: bytes, is_confluent: bool) -> Any:
        at = 0
        if is_confluent:
            if len(value) < CONFLUENT_BYTES or value[0]:
                raise Bad(_NOT_FRAMED, 0, 0)
            at = CONFLUENT_BYTES
        made, at = self._decode(value, at, len(value), [len(value) + FREE_ITEMS])
        if at != len(value):
            raise Bad(_TRAILING, 0, at)
        return made


class _Writer:
    """Lines of the function, and the values that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "Bad": Bad,
            "read_long": _read_long,
            "read_bytes": _read_bytes,
            "read_text": _read_text,
            "read_decimal": _read_decimal,
            "read_count": _read_count,
            "FLOAT": _FLOAT.unpack_from,
            "DOUBLE": _DOUBLE.unpack_from,
            "UUID": UUID,
        }
        self._indent = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    def block(self, text: str) -> _Block:
        self.line(text)
        return _Block(self)

    def shift(self, by: int) -> None:
        self._indent += by


class _Block:
    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._writer.shift(1)

    def __exit__(self, *_: object) -> None:
        self._writer.shift(-1)


def _generate(root: Node) -> _Decode:
    writer = _Writer()
    _emit(writer, root)
    writer.line(f"return v{root.index}, at")
    source = "def decode(data, at, end, budget):\n" + "\n".join(writer.lines)
    exec(compile(source, "<avro>", "exec"), writer.names)
    made: _Decode = writer.names["decode"]
    return made


def _emit(w: _Writer, node: Node) -> None:
    """Lines that leave the node's value in ``v<index>`` and go on with ``at`` behind it."""
    _EMITTERS[node.kind](w, node, f"v{node.index}")


def _emit_null(w: _Writer, _node: Node, v: str) -> None:
    w.line(f"{v} = None")


def _emit_long(w: _Writer, node: Node, v: str) -> None:
    with w.block("if at < end and data[at] < 128:"):
        w.line(f"{v} = data[at] >> 1 ^ -(data[at] & 1); at += 1")
    with w.block("else:"):
        w.line(f"{v}, at = read_long(data, at, end, {node.index})")


def _emit_int(w: _Writer, node: Node, v: str) -> None:
    _emit_long(w, node, v)
    w.line(f"if not -2147483648 <= {v} <= 2147483647: raise Bad({_VARINT}, {node.index}, at)")


def _emit_millis(w: _Writer, node: Node, v: str) -> None:
    _emit_long(w, node, v)
    limit = _MAX_INT64 // 1000
    w.line(f"if not -{limit} <= {v} <= {limit}: raise Bad({_TIMESTAMP}, {node.index}, at)")
    w.line(f"{v} *= 1000")


def _emit_boolean(w: _Writer, node: Node, v: str) -> None:
    w.line(f"if at >= end: raise Bad({_SHORT}, {node.index}, at)")
    w.line(f"{v} = data[at]; at += 1")
    w.line(f"if {v} > 1: raise Bad({_BOOLEAN}, {node.index}, at)")
    w.line(f"{v} = {v} == 1")


def _emit_float(w: _Writer, node: Node, v: str) -> None:
    name, width = ("FLOAT", 4) if node.kind is Kind.FLOAT else ("DOUBLE", 8)
    w.line(f"if end - at < {width}: raise Bad({_SHORT}, {node.index}, at)")
    w.line(f"{v} = {name}(data, at)[0]; at += {width}")


def _emit_sized(w: _Writer, node: Node, v: str) -> None:
    _emit_long(w, node, v)
    w.line(f"{v}, at = read_bytes(data, at, end, {v}, {node.index})")
    if node.kind is Kind.STRING:
        w.line(f"{v} = read_text({v}, {node.index}, at)")


def _emit_fixed(w: _Writer, node: Node, v: str) -> None:
    w.line(f"{v}, at = read_bytes(data, at, end, {node.a}, {node.index})")
    if node.kind is Kind.UUID:
        w.line(f"{v} = str(UUID(bytes={v}))")


def _emit_decimal(w: _Writer, node: Node, v: str) -> None:
    (_emit_sized if node.kind is Kind.DECIMAL else _emit_fixed)(w, node, v)
    w.line(f"{v} = read_decimal({v}, {node.b}, {node.arrow.scale}, {node.index}, at)")


def _emit_enum(w: _Writer, node: Node, v: str) -> None:
    _emit_long(w, node, v)
    w.line(f"if not 0 <= {v} < {node.b}: raise Bad({_ENUM}, {node.index}, at)")
    w.names[f"symbols{node.index}"] = tuple(node.symbols)
    w.line(f"{v} = symbols{node.index}[{v}]")


def _emit_record(w: _Writer, node: Node, v: str) -> None:
    for child in node.children:
        _emit(w, child)
    pairs = (f"{name!r}: v{child.index}" for name, child in zip(node.names, node.children, strict=True))
    w.line(f"{v} = {{{', '.join(pairs)}}}")


def _emit_items(w: _Writer, node: Node, v: str) -> None:
    w.line(f"{v} = []")
    with w.block("while True:"):
        w.line(f"n{node.index}, at = read_count(data, at, end, {node.index}, budget)")
        w.line(f"if not n{node.index}: break")
        with w.block(f"for _ in range(n{node.index}):"):
            for child in node.children:
                _emit(w, child)
            made = ", ".join(f"v{child.index}" for child in node.children)
            w.line(f"{v}.append({made if node.kind is Kind.ARRAY else f'({made})'})")


def _emit_branch(w: _Writer, node: Node) -> None:
    _emit_long(w, node, f"b{node.index}")
    w.line(f"if not 0 <= b{node.index} < {node.b}: raise Bad({_BRANCH}, {node.index}, at)")


def _emit_union(w: _Writer, node: Node, v: str) -> None:
    _emit_branch(w, node)
    w.line(f"{v} = None")
    place = 0
    for branch in range(node.b):
        if branch == node.a:
            continue
        child = node.children[place]
        with w.block(f"if b{node.index} == {branch}:"):
            _emit(w, child)
            w.line(
                f"{v} = v{child.index}" if node.kind is Kind.OPTIONAL else f"{v} = {{'member{place}': v{child.index}}}"
            )
        place += 1


def _emit_number(w: _Writer, node: Node, v: str) -> None:
    _emit_branch(w, node)
    for branch in range(node.b):
        with w.block(f"if b{node.index} == {branch}:"):
            if branch == node.a:
                w.line(f"{v} = None")
            elif node.kind is Kind.ANY_LONG:
                _emit_long(w, node, v)
            else:
                name, width = ("DOUBLE", 8) if node.wide >> branch & 1 else ("FLOAT", 4)
                w.line(f"if end - at < {width}: raise Bad({_SHORT}, {node.index}, at)")
                w.line(f"{v} = {name}(data, at)[0]; at += {width}")


_EMITTERS: dict[Kind, Callable[[_Writer, Node, str], None]] = {
    Kind.NULL: _emit_null,
    Kind.BOOLEAN: _emit_boolean,
    Kind.INT: _emit_int,
    Kind.LONG: _emit_long,
    Kind.MILLIS: _emit_millis,
    Kind.FLOAT: _emit_float,
    Kind.DOUBLE: _emit_float,
    Kind.BYTES: _emit_sized,
    Kind.STRING: _emit_sized,
    Kind.FIXED: _emit_fixed,
    Kind.UUID: _emit_fixed,
    Kind.ENUM: _emit_enum,
    Kind.DECIMAL: _emit_decimal,
    Kind.DECIMAL_FIXED: _emit_decimal,
    Kind.RECORD: _emit_record,
    Kind.ARRAY: _emit_items,
    Kind.MAP: _emit_items,
    Kind.OPTIONAL: _emit_union,
    Kind.UNION: _emit_union,
    Kind.ANY_LONG: _emit_number,
    Kind.ANY_DOUBLE: _emit_number,
}


# What the generated lines call


def _read_long(data: bytes, at: int, end: int, node: int) -> tuple[int, int]:
    raw, place = 0, at
    for shift in range(0, 70, 7):
        if place >= end:
            break
        byte = data[place]
        place += 1
        if shift == 63 and byte > 1:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), place
    raise Bad(_VARINT, node, at)


def _read_bytes(data: bytes, at: int, end: int, length: int, node: int) -> tuple[bytes, int]:
    if length < 0:
        raise Bad(_LENGTH, node, at)
    if length > end - at:
        raise Bad(_SHORT, node, at)
    return data[at : at + length], at + length


def _read_text(data: bytes, node: int, at: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Bad(_UTF8, node, at) from None


def _read_decimal(data: bytes, precision: int, scale: int, node: int, at: int) -> Decimal:
    number = int.from_bytes(data, "big", signed=True)
    if abs(number) >= 10**precision:
        raise Bad(_DECIMAL, node, at)
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -scale))


def _read_count(data: bytes, at: int, end: int, node: int, budget: list[int]) -> tuple[int, int]:
    """The items of the next block of an array or map. A negative number is followed by the block's size in bytes."""
    count, at = _read_long(data, at, end, node)
    if count < 0:
        if count == -_MAX_INT64 - 1:
            raise Bad(_LENGTH, node, at)
        count = -count
        _, at = _read_long(data, at, end, node)
    if count > budget[0]:
        raise Bad(_TOO_MANY, node, at)
    budget[0] -= count
    return count, at
