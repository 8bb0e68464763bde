"""The compiler of readers: bytes to messages.

Adjacent fields of a fixed size, the length that follows them and the tag count at a struct's end are read
with one unpack. Structs are read in place, without a call. A reader may look past ``end`` within the buffer
while it unpacks, so the last line checks the end; what allocates (texts, bytes, arrays) checks before.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from barnabas.wire.schema import FIXED, Buffer, DecodeError, Field, Message, Struct, fields_of, is_flexible
from barnabas.wire.source import Layout, Source

Reader: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
"""(buffer, start, end) -> (message, where it ended); raises DecodeError only."""

LONGEST_STRING = 0x7FFF
"""Kafka's limit for texts in the compact form too."""

_CACHED_COUNT = 128


class _ArrayReaders(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """Unpackers of so many numbers, by count."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        unpack = struct.Struct(">" + self._code * count if len(self._code) > 1 else f">{count}{self._code}").unpack_from
        if count < _CACHED_COUNT:
            self[count] = unpack
        return unpack


def varint(buffer: Buffer, offset: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte has its high bit set: (value, where it ended)."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, offset
    raise DecodeError("a varint is longer than 32 bits")


MAX_TAGGED_FIELDS = 1000
"""Of one struct. Kafka has five at most; unknown ones are skipped one by one, which a million of them makes felt."""


def string_length(buffer: Buffer, offset: int, first: int) -> tuple[int, int]:
    length, offset = varint(buffer, offset, first)
    if length > LONGEST_STRING + 1:
        raise DecodeError(f"a text of {length - 1} bytes is too long")
    return length, offset


def tag_count(buffer: Buffer, offset: int, first: int, end: int) -> tuple[int, int]:
    """How many tagged fields follow; each takes two bytes at least."""
    count = first
    if count > 127:
        count, offset = varint(buffer, offset, first)
    if 2 * count > end - offset or count > MAX_TAGGED_FIELDS:
        raise DecodeError(f"{count} tagged fields in {end - offset} bytes")
    return count, offset


def next_tag(buffer: Buffer, offset: int, last: int, end: int) -> tuple[int, int, int]:
    """The head of a tagged field: (tag, where its value starts, where it ends). Tags ascend."""
    tag = buffer[offset]
    offset += 1
    if tag > 127:
        tag, offset = varint(buffer, offset, tag)
    size = buffer[offset]
    offset += 1
    if size > 127:
        size, offset = varint(buffer, offset, size)
    if tag <= last:
        raise DecodeError(f"tag {tag} after tag {last}")
    if offset + size > end:
        raise DecodeError(f"tag {tag} has {size} bytes where {end - offset} are left")
    return tag, offset, offset + size


def skip_tags(buffer: Buffer, offset: int, first: int, end: int) -> int:
    count, offset = tag_count(buffer, offset, first, end)
    tag = -1
    for _ in range(count):
        tag, _, offset = next_tag(buffer, offset, tag, end)
    return offset


def bad_length(name: str) -> DecodeError:
    return DecodeError(f"{name}: null where it may not be, or longer than the bytes that are left")


def bad_size(name: str) -> DecodeError:
    return DecodeError(f"{name}: the tagged field's size is wrong")


_NAMES: dict[str, Any] = {
    "varint": varint,
    "string_length": string_length,
    "tag_count": tag_count,
    "next_tag": next_tag,
    "skip_tags": skip_tags,
    "bad_length": bad_length,
    "bad_size": bad_size,
    "DecodeError": DecodeError,
    "Malformed": (struct.error, IndexError, UnicodeDecodeError),
}
_NAMES |= {f"many_{kind}": _ArrayReaders(code) for kind, (code, _) in FIXED.items()}


def compile_reader(cls: type[Message], version: int) -> Reader:
    return _ReaderCompiler(cls, version).compile()


class _ReaderCompiler:
    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._layout = Layout(version, is_flexible(cls, version))
        self._source = Source(_NAMES)
        self._run: list[tuple[str, str]] = []
        """Fixed-size values that are read together when the run ends: struct format, variable."""

    def compile(self) -> Reader:
        source = self._source
        title = f"{self._cls.__name__} v{self._layout.version}"
        source.begin("def read(b, o, end):")
        source.begin("try:")
        self._struct(self._cls, "m")
        source.end()
        source.begin("except Malformed as error:")
        source.line(f"raise DecodeError(f'{title}: {{error}}') from error")
        source.end()
        source.begin("if o > end:")
        source.line(f"raise DecodeError('{title}: cut off')")
        source.end()
        source.line("return m, o")
        source.end()
        reader: Reader = source.compile("read", f"read {title}")
        return reader

    # -- structs

    def _struct(self, cls: type[Struct], target: str) -> None:
        """Reads the fields in order, then the tagged ones, and makes the object."""
        layout = self._layout
        values = {field.name: self._source.fresh("v") for field in layout.present(cls)}
        for field in layout.plain(cls):
            self._field(field, values[field.name])
        if layout.flexible:
            self._tags(cls, values)
        self._flush()
        arguments = [values.get(field.name) or self._default(field) for field in fields_of(cls)]
        while arguments and fields_of(cls)[len(arguments) - 1].name not in values:
            arguments.pop()
        self._source.line(f"{target} = {self._source.struct_class(cls)}({', '.join(arguments)})")

    def _default(self, field: Field) -> str:
        if field.default is None:
            return "None"
        if field.kind == "array":
            return "[]"
        if field.struct is not None:
            return f"{self._source.struct_class(field.struct)}()"
        return repr(field.default)

    def _tags(self, cls: type[Struct], values: dict[str, str]) -> None:
        source, tagged = self._source, self._layout.tagged(cls)
        for field in tagged:
            source.line(f"{values[field.name]} = {self._default(field)}")
        count = self._read_now("B", "t")
        source.begin(f"if {count}:")
        if tagged:
            self._known_tags(tagged, values, count)
        else:
            source.line(f"o = skip_tags(b, o, {count}, end)")
        source.end()

    def _known_tags(self, tagged: list[Field], values: dict[str, str], count: str) -> None:
        source = self._source
        tag, stop = source.fresh("g"), source.fresh("e")
        source.line(f"{count}, o = tag_count(b, o, {count}, end)")
        source.line(f"{tag} = -1")
        source.begin(f"for _ in range({count}):")
        source.line(f"{tag}, o, {stop} = next_tag(b, o, {tag}, end)")
        for position, field in enumerate(tagged):
            source.begin(f"{'elif' if position else 'if'} {tag} == {field.tag}:")
            self._field(field, values[field.name])
            self._flush()
            source.begin(f"if o != {stop}:")
            source.line(f"raise bad_size('{field.name}')")
            source.end()
            source.end()
        source.begin("else:")
        source.line(f"o = {stop}")
        source.end()
        source.end()

    # -- fields

    def _field(self, field: Field, target: str) -> None:
        if field.kind in FIXED:
            self._run.append((FIXED[field.kind][0], target))
        elif field.kind == "struct":
            self._nested(field, target)
        elif field.kind == "array":
            self._array(field, target)
        else:
            self._text(field, target)

    def _nested(self, field: Field, target: str) -> None:
        assert field.struct is not None
        if not self._layout.is_nullable(field):
            self._struct(field.struct, target)
            return
        marker = self._read_now("b", "n")
        # Before a tagged struct stands a count, 0 or 1; before any other a sign, -1 or 1.
        self._source.begin(f"if {marker} {'<=' if self._layout.is_tagged(field) else '<'} 0:")
        self._source.line(f"{target} = None")
        self._source.end()
        self._source.begin("else:")
        self._struct(field.struct, target)
        self._source.end()

    def _text(self, field: Field, target: str) -> None:
        """A text, bytes or records: a length, then as many bytes."""
        length = self._length(field, field.kind)
        self._sized(field.name, field.kind, length, self._layout.is_nullable(field), target)

    def _sized(self, name: str, kind: str, length: str, nullable: bool, target: str) -> None:
        source = self._source
        if nullable:
            source.begin(f"if {length} < 0:")
            source.line(f"{target} = None")
            source.end()
            source.begin("else:")
        stop = source.fresh("e")
        source.line(f"{stop} = o + {length}")
        source.begin(f"if not o <= {stop} <= end:")
        source.line(f"raise bad_length('{name}')")
        source.end()
        taken = {"str": "str(b[o:{0}], 'utf-8')", "bytes": "bytes(b[o:{0}])", "records": "memoryview(b)[o:{0}]"}
        source.line(f"{target} = {taken[kind].format(stop)}")
        source.line(f"o = {stop}")
        if nullable:
            source.end()

    def _array(self, field: Field, target: str) -> None:
        source = self._source
        count = self._length(field, "array")
        if nullable := self._layout.is_nullable(field):
            source.begin(f"if {count} < 0:")
            source.line(f"{target} = None")
            source.end()
            source.begin("else:")
        source.begin(f"if {count} < 0 or {count} * {self._layout.smallest_element(field)} > end - o:")
        source.line(f"raise bad_length('{field.name}')")
        source.end()
        if field.element in FIXED:
            source.line(f"{target} = list(many_{field.element}[{count}](b, o))")
            source.line(f"o += {count} * {FIXED[field.element][1]}")
        else:
            self._loop(field, count, target)
        if nullable:
            source.end()

    def _loop(self, field: Field, count: str, target: str) -> None:
        source = self._source
        append, item = source.fresh("a"), source.fresh("x")
        source.line(f"{target} = []")
        source.line(f"{append} = {target}.append")
        source.begin(f"for _ in range({count}):")
        if field.struct is not None:
            self._struct(field.struct, item)
        else:
            length = self._length(field, field.element)
            self._sized(field.name, field.element, length, False, item)
        source.line(f"{append}({item})")
        source.end()

    # -- numbers

    def _length(self, field: Field, kind: str) -> str:
        """Reads a length or a count; -1 and below mean null."""
        if not self._layout.is_compact(field):
            return self._read_now("h" if kind == "str" else "i", "n")
        length = self._read_now("B", "n")
        source = self._source
        source.begin(f"if {length} > 127:")
        source.line(f"{length}, o = {'string_length' if kind == 'str' else 'varint'}(b, o, {length})")
        source.end()
        source.line(f"{length} -= 1")
        return length

    def _read_now(self, code: str, prefix: str) -> str:
        """Reads a number that decides what comes next, together with the run before it."""
        name = self._source.fresh(prefix)
        self._run.append((code, name))
        self._flush()
        return name

    def _flush(self) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        targets = ", ".join(name for _, name in self._run)
        if codes == "B":
            self._source.line(f"{targets} = b[o]")
            self._source.line("o += 1")
        else:
            self._source.line(f"{targets}, = {self._source.unpacker('>' + codes)}(b, o)")
            self._source.line(f"o += {struct.calcsize('>' + codes)}")
        self._run.clear()
