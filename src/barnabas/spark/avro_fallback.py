"""The Avro codec of ``_avro.c`` in Python, for where the extension was not built: slow, a value at a time.

It reads and writes by the nodes of the schema. Tests hold rows, bytes and faults equal to those of the native codec.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from struct import Struct
from typing import Any, NoReturn
from uuid import UUID

import pyarrow as pa

from barnabas.spark.avro import FRAME_BYTES, RawFault, Reason
from barnabas.spark.avro_schema import Kind, Node
from barnabas.wire.records import append_varint, read_varint

FREE_ITEMS = 1024
"""Of a row's arrays and maps, beside one for each byte of it."""

_MAX_MILLIS = (2**63 - 1) // 1000
_EPOCH, _EPOCH_HERE, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1), date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=60)
_FLOATS = {Kind.FLOAT: Struct("<f"), Kind.DOUBLE: Struct("<d")}
_SIZED = (Kind.BYTES, Kind.STRING, Kind.DECIMAL)
_UUID_PARTS = [8, 4, 4, 4, 12]


class Refused(Exception):
    """The value is at fault: the reason, the node's number and the position."""


class Codec:
    def __init__(self, root: Node) -> None:
        self._root = root

    def decode(self, values: pa.Array, is_framed: bool, stops_at_fault: bool) -> tuple[pa.StructArray, list[RawFault]]:
        rows: list[Any] = []
        faults: list[RawFault] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else _Reader(value).row(self._root, is_framed))
            except Refused as refused:
                faults.append((row, *refused.args))
                rows.append(None)
                if stops_at_fault:
                    break
        return pa.array(rows, self._root.arrow), faults

    def encode(self, structs: pa.StructArray, prefix: bytes) -> tuple[pa.Array, list[RawFault]]:
        values: list[bytes | None] = []
        faults: list[RawFault] = []
        for row, struct in enumerate(structs.to_pylist()):
            out = bytearray(prefix)
            try:
                if struct is not None:
                    _write(out, self._root, struct)
                values.append(None if struct is None else bytes(out))
            except Refused as refused:
                faults.append((row, *refused.args))
                values.append(None)
        return pa.array(values, pa.binary()), faults


class _Reader:
    """Over one value. Makes Python values that pyarrow takes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._budget = len(data) + FREE_ITEMS

    def row(self, root: Node, is_framed: bool) -> Any:
        if is_framed:
            if len(self._data) < FRAME_BYTES or self._data[0]:
                self._fail(Reason.NOT_FRAMED, root)
            self._at = FRAME_BYTES
        value = self._value(root)
        if self._at != len(self._data):
            self._fail(Reason.TRAILING, root)
        return value

    def _fail(self, reason: Reason, node: Node) -> NoReturn:
        raise Refused(reason, node.index, self._at)

    def _long(self, node: Node) -> int:
        try:
            number, self._at = read_varint(self._data, self._at)
        except (IndexError, ValueError):
            self._fail(Reason.VARINT, node)
        return number

    def _within(self, node: Node, number: int, low: int, high: int, reason: Reason) -> int:
        if not low <= number <= high:
            self._fail(reason, node)
        return number

    def _bytes(self, node: Node, size: int) -> bytes:
        self._within(node, size, 0, size, Reason.LENGTH)
        self._within(node, size, 0, len(self._data) - self._at, Reason.SHORT)
        self._at += size
        return self._data[self._at - size : self._at]

    def _value(self, node: Node) -> Any:
        match node.kind:
            case Kind.NULL:
                return None
            case Kind.RECORD:
                return {name: self._value(child) for name, child in zip(node.names, node.children, strict=True)}
            case Kind.ARRAY | Kind.MAP:
                return self._items(node)
            case Kind.OPTIONAL | Kind.UNION | Kind.ANY_LONG | Kind.ANY_DOUBLE:
                return self._union(node)
            case Kind.INT:
                return self._within(node, self._long(node), -(2**31), 2**31 - 1, Reason.VARINT)
            case Kind.LONG:
                return self._long(node)
            case Kind.MILLIS:
                return self._within(node, self._long(node), -_MAX_MILLIS, _MAX_MILLIS, Reason.TIMESTAMP) * 1000
            case Kind.ENUM:
                return node.symbols[self._within(node, self._long(node), 0, node.b - 1, Reason.ENUM)]
            case Kind.FLOAT | Kind.DOUBLE:
                return self._float(node, node.kind)
            case Kind.BOOLEAN:
                return self._within(node, self._bytes(node, 1)[0], 0, 1, Reason.BOOLEAN) == 1
        return self._sized(node)

    def _sized(self, node: Node) -> Any:
        value = self._bytes(node, self._long(node) if node.kind in _SIZED else node.a)
        if node.kind in (Kind.DECIMAL, Kind.DECIMAL_FIXED):
            limit = 10**node.b - 1
            number = self._within(node, int.from_bytes(value, "big", signed=True), -limit, limit, Reason.DECIMAL)
            return Decimal(number).scaleb(-node.arrow.scale, _EXACT)
        if node.kind is Kind.UUID:
            return str(UUID(bytes=value))
        if node.kind is not Kind.STRING:
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            self._fail(Reason.UTF8, node)

    def _float(self, node: Node, kind: Kind) -> Any:
        form = _FLOATS[kind]
        return form.unpack(self._bytes(node, form.size))[0]

    def _items(self, node: Node) -> list[Any]:
        """Blocks with their counts. A block whose count is negative has its size, too."""
        items: list[Any] = []
        while count := self._long(node):
            if count < 0:
                self._within(node, count, 1 - 2**63, 0, Reason.LENGTH)
                count = -count
                self._long(node)
            self._within(node, count, 0, self._budget, Reason.TOO_MANY)
            self._budget -= count
            for _ in range(count):
                parts = [self._value(child) for child in node.children]
                items.append(tuple(parts) if node.kind is Kind.MAP else parts[0])
        return items

    def _union(self, node: Node) -> Any:
        branch = self._within(node, self._long(node), 0, node.b - 1, Reason.BRANCH)
        if branch == node.a:
            return None
        if node.kind is Kind.ANY_LONG:
            return self._long(node)
        if node.kind is Kind.ANY_DOUBLE:
            return self._float(node, Kind.DOUBLE if node.wide >> branch & 1 else Kind.FLOAT)
        place = branch - (0 <= node.a < branch)
        value = self._value(node.children[place])
        return value if node.kind is Kind.OPTIONAL else {node.names[place]: value}


def _refuse(reason: Reason, node: Node) -> NoReturn:
    raise Refused(reason, node.index, 0)


def _write(out: bytearray, node: Node, value: Any) -> None:
    if node.kind in (Kind.OPTIONAL, Kind.UNION, Kind.ANY_LONG, Kind.ANY_DOUBLE):
        _write_union(out, node, value)
    elif node.kind is not Kind.NULL and value is None:
        _refuse(Reason.NULL, node)
    elif node.kind is Kind.RECORD:
        for name, child in zip(node.names, node.children, strict=True):
            _write(out, child, value[name])
    elif node.kind in (Kind.ARRAY, Kind.MAP):
        if value:
            append_varint(out, len(value))
        for item in value:
            for child, part in zip(node.children, item if node.kind is Kind.MAP else [item], strict=True):
                _write(out, child, part)
        append_varint(out, 0)
    elif node.kind is not Kind.NULL:
        _write_plain(out, node, value)


def _write_union(out: bytearray, node: Node, value: Any) -> None:
    if node.kind in (Kind.ANY_LONG, Kind.ANY_DOUBLE) and value is not None:
        append_varint(out, next(branch for branch in range(node.b) if node.wide >> branch & 1))
        if node.kind is Kind.ANY_LONG:
            append_varint(out, value)
        else:
            out += _FLOATS[Kind.DOUBLE].pack(value)
        return
    members = [(value or {}).get(name) for name in node.names] if node.kind is Kind.UNION else [value]
    for place, (child, member) in enumerate(zip(node.children, members, strict=False)):
        if member is not None:
            append_varint(out, place + (0 <= node.a <= place))
            _write(out, child, member)
            return
    if node.a < 0:
        _refuse(Reason.NULL, node)
    append_varint(out, node.a)


def _write_plain(out: bytearray, node: Node, value: Any) -> None:
    match node.kind:
        case Kind.BOOLEAN:
            out.append(value)
        case Kind.INT | Kind.LONG:
            append_varint(out, _number(value))
        case Kind.MILLIS:
            append_varint(out, _number(value) // 1000)
        case Kind.FLOAT | Kind.DOUBLE:
            out += _FLOATS[node.kind].pack(value)
        case Kind.ENUM:
            if value not in node.symbols:
                _refuse(Reason.ENUM, node)
            append_varint(out, node.symbols.index(value))
        case _:
            data = _plain_bytes(node, value)
            if node.kind in _SIZED:
                append_varint(out, len(data))
            out += data


def _number(value: Any) -> int:
    """A time or day as Arrow counts it."""
    if isinstance(value, datetime):
        return (value - (_EPOCH_HERE if value.tzinfo is None else _EPOCH)) // _MICROSECOND
    return (value - _FIRST_DAY).days if isinstance(value, date) else int(value)


def _plain_bytes(node: Node, value: Any) -> bytes:
    if node.kind in (Kind.DECIMAL, Kind.DECIMAL_FIXED):
        number = int(value.scaleb(node.arrow.scale, _EXACT))
        size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
        if node.kind is Kind.DECIMAL_FIXED:
            if size > node.a:
                _refuse(Reason.DECIMAL, node)
            size = node.a
        return number.to_bytes(size, "big", signed=True)
    if node.kind is Kind.UUID:
        is_uuid = [len(part) for part in value.split("-")] == _UUID_PARTS
        if not is_uuid or not all(letter in "0123456789abcdefABCDEF-" for letter in value):
            _refuse(Reason.UUID, node)
        return UUID(value).bytes
    if node.kind is Kind.FIXED and len(value) != node.a:
        _refuse(Reason.LENGTH, node)
    return value.encode() if isinstance(value, str) else bytes(value)
