"""The compiler of writers: messages to bytes.

Adjacent fields of a fixed size, arrays of numbers among them and the length that follows are written with
one pack. The pieces are joined once. Large records are passed on as they are, as chunks of their own.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from barnabas.wire.schema import FIXED, Chunk, EncodeError, Field, Message, Struct, is_flexible
from barnabas.wire.source import Layout, Source

Writer: TypeAlias = Callable[[Any], list[Chunk]]
"""message -> chunks; raises EncodeError only."""

JOINED_RECORDS_BYTES = 4096
"""Records up to this size are copied into the chunk around them; larger ones are not."""

_LONGEST_STRING = 0x7FFF
_CACHED_PACKERS = 512
_BYTE = [bytes((value,)) for value in range(128)]
_BYTES_TYPES = frozenset({bytes, bytearray, memoryview})


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 128:
        return _BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(value: int) -> bytes:
    """The compact length of a text that needs more than one byte."""
    if value > _LONGEST_STRING + 1:
        raise EncodeError(f"a text of {value - 1} bytes is too long")
    return varint(value)


def bad_uuid(name: str) -> EncodeError:
    return EncodeError(f"{name}: a UUID has 16 bytes")


class _Number(NamedTuple):
    """A value of a fixed size within a run; padding has no value."""

    code: str
    value: str


class _Array(NamedTuple):
    """An array of numbers within a run."""

    code: str
    compact: bool
    length: str
    items: str


class _Packers(dict[Any, Callable[..., bytes]]):
    """Packers of a run with arrays in it, by the counts of those arrays (-1 for null).

    Replication factors and the like take few values, so that a whole partition is one call of pack.
    """

    def __init__(self, parts: list[_Number | _Array]) -> None:
        super().__init__()
        self._parts = parts

    def __missing__(self, counts: Any) -> Callable[..., bytes]:
        if len(self) >= _CACHED_PACKERS:
            self.clear()
        pack = self[counts] = self._build(counts if isinstance(counts, tuple) else (counts,))
        return pack

    def _build(self, counts: tuple[int, ...]) -> Callable[..., bytes]:
        formats, long_counts, position, left = ">", [], 0, list(counts)
        for part in self._parts:
            if isinstance(part, _Number):
                formats += part.code
                position += bool(part.value)
                continue
            count = left.pop(0)
            if not part.compact:
                formats += "i"
            elif count < 127:
                formats += "b"
            else:
                formats += f"{len(varint(count + 1))}s"
                long_counts.append(position)
            formats += f"{max(count, 0)}{part.code}"
            position += 1 + max(count, 0)
        pack = struct.Struct(formats).pack
        return _with_varints(pack, long_counts) if long_counts else pack


def _with_varints(pack: Callable[..., bytes], positions: list[int]) -> Callable[..., bytes]:
    """A packer for runs in which the counts at these positions need more than a byte."""

    def pack_long(*values: Any) -> bytes:
        changed = list(values)
        for position in positions:
            changed[position] = varint(changed[position])
        return pack(*changed)

    return pack_long


_NAMES: dict[str, Any] = {
    "varint": varint,
    "string_length": string_length,
    "bad_uuid": bad_uuid,
    "BYTE": _BYTE,
    "BYTES_TYPES": _BYTES_TYPES,
    "EncodeError": EncodeError,
    "Refused": (struct.error, TypeError, AttributeError, ValueError, OverflowError),
    "join": b"".join,
}


def compile_writer(cls: type[Message], version: int) -> Writer:
    return _WriterCompiler(cls, version).compile()


class _WriterCompiler:
    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._layout = Layout(version, is_flexible(cls, version))
        self._source = Source(_NAMES)
        self._run: list[_Number | _Array] = []
        """What is packed together when the run ends."""

    def compile(self) -> Writer:
        source = self._source
        title = f"{self._cls.__name__} v{self._layout.version}"
        source.begin("def write(m):")
        source.begin("try:")
        source.line("chunks = []")
        source.line("out = []")
        source.line("w = out.append")
        self._struct(self._cls, "m")
        self._flush()
        source.line("chunks.append(join(out))")
        source.line("return chunks")
        source.end()
        source.begin("except Refused as error:")
        source.line(f"raise EncodeError(f'{title}: {{error}}') from error")
        source.end()
        source.end()
        writer: Writer = source.compile("write", f"write {title}")
        return writer

    # -- structs

    def _struct(self, cls: type[Struct], value: str) -> None:
        for field in self._layout.plain(cls):
            self._field(field, f"{value}.{field.name}")
        if not self._layout.flexible:
            return
        if tagged := self._layout.tagged(cls):
            self._tags(tagged, value)
        else:
            self._run.append(_Number("x", ""))

    def _tags(self, tagged: list[Field], value: str) -> None:
        """Each tagged field that is not its default goes into a piece of its own, whose size is written first."""
        source = self._source
        self._flush()
        differs = {field.name: f"{value}.{field.name} != {self._default(field)}" for field in tagged}
        source.begin(f"if {' or '.join(differs.values())}:")
        outer, pieces, count = source.fresh("w"), source.fresh("g"), source.fresh("c")
        source.line(f"{outer} = w")
        source.line(f"{pieces} = []")
        source.line(f"{count} = 0")
        for field in tagged:
            source.begin(f"if {differs[field.name]}:")
            self._tag(field, f"{value}.{field.name}", pieces)
            source.line(f"{count} += 1")
            source.end()
        source.line(f"w = {outer}")
        source.line(f"w(varint({count}))")
        source.line(f"w(join({pieces}))")
        source.end()
        source.begin("else:")
        source.line("w(BYTE[0])")
        source.end()

    def _tag(self, field: Field, value: str, pieces: str) -> None:
        source = self._source
        piece = source.fresh("h")
        source.line(f"{piece} = []")
        source.line(f"w = {piece}.append")
        self._field(field, value)
        self._flush()
        source.line(f"{piece} = join({piece})")
        source.line(f"{pieces} += varint({field.tag}), varint(len({piece})), {piece}")

    def _default(self, field: Field) -> str:
        if isinstance(field.default, (list, Struct)):
            return self._source.constant("D", (field.struct, field.kind, field.element), lambda: field.default)
        return repr(field.default)

    # -- fields

    def _field(self, field: Field, value: str) -> None:
        if field.kind in FIXED:
            self._fixed(field, value)
        elif field.kind == "struct":
            self._nested(field, value)
        elif field.kind == "array":
            self._array(field, value)
        elif field.kind == "records":
            self._records(field, value)
        else:
            self._text(field, value)

    def _fixed(self, field: Field, value: str) -> None:
        if field.kind == "uuid":
            # Struct would cut a longer value and fill up a shorter one.
            self._check(f"len({value}) != 16", f"bad_uuid('{field.name}')")
        # "?" would take None for False.
        code = "b" if field.kind == "bool" else FIXED[field.kind][0]
        self._run.append(_Number(code, value))

    def _nested(self, field: Field, value: str) -> None:
        assert field.struct is not None
        item = self._source.fresh("x")
        if not self._layout.is_nullable(field):
            self._source.line(f"{item} = {value}")
            self._struct(field.struct, item)
            return
        self._flush()
        self._source.line(f"{item} = {value}")
        self._source.begin(f"if {item} is None:")
        self._source.line("w(b'\\x00')" if self._layout.is_tagged(field) else "w(b'\\xff')")
        self._source.end()
        self._source.begin("else:")
        self._run.append(_Number("b", "1"))
        self._struct(field.struct, item)
        self._flush()
        self._source.end()

    def _text(self, field: Field, value: str) -> None:
        compact, is_text = self._layout.is_compact(field), field.kind == "str"
        item = self._source.fresh("s")
        length = self._sized(field, value, item, f"{value}.encode()" if is_text else value)
        self._length(length, compact, is_text)
        self._source.line(f"w({item})")

    def _sized(self, field: Field, value: str, item: str, taken: str) -> str:
        """Takes a value that may be null and its length, which is one more in the compact form."""
        source, compact = self._source, self._layout.is_compact(field)
        length = source.fresh("n")
        if nullable := self._layout.is_nullable(field):
            source.begin(f"if {value} is None:")
            source.line(f"{item} = {'()' if field.kind == 'array' else repr(b'')}")
            source.line(f"{length} = {0 if compact else -1}")
            source.end()
            source.begin("else:")
        source.line(f"{item} = {taken}")
        source.line(f"{length} = len({item}){' + 1' if compact else ''}")
        if nullable:
            source.end()
        return length

    def _records(self, field: Field, value: str) -> None:
        source, compact = self._source, self._layout.is_compact(field)
        item, size = source.fresh("r"), source.fresh("z")
        source.line(f"{item} = {value}")
        if self._layout.is_nullable(field):
            source.line(
                f"{size} = -1 if {item} is None else len({item}) if {item}.__class__ in BYTES_TYPES else {item}.size"
            )
        else:
            source.line(f"{size} = len({item}) if {item}.__class__ in BYTES_TYPES else {item}.size")
        self._length(f"{size} + 1" if compact else size, compact, False)
        source.begin(f"if {size} > {JOINED_RECORDS_BYTES} or {size} > 0 and {item}.__class__ not in BYTES_TYPES:")
        source.line("chunks.append(join(out))")
        source.line("out.clear()")
        source.line(f"chunks.append({item})")
        source.end()
        source.begin(f"elif {size} > 0:")
        source.line(f"w({item})")
        source.end()

    def _array(self, field: Field, value: str) -> None:
        source = self._source
        items = source.fresh("l")
        if field.element in FIXED and field.element != "uuid":
            self._numbers(field, value, items)
            return
        length = self._sized(field, value, items, value)
        self._length(length, self._layout.is_compact(field), False)
        item = source.fresh("x")
        source.begin(f"for {item} in {items}:")
        self._element(field, item)
        self._flush()
        source.end()

    def _element(self, field: Field, item: str) -> None:
        if field.struct is not None:
            self._struct(field.struct, item)
        elif field.element == "uuid":
            self._check(f"len({item}) != 16", f"bad_uuid('{field.name}')")
            self._source.line(f"w({item})")
        else:
            text, length, compact = self._source.fresh("s"), self._source.fresh("n"), self._layout.is_compact(field)
            taken = f"{item}.encode()" if field.element == "str" else item
            self._source.line(f"{text} = {taken}")
            self._source.line(f"{length} = len({text}){' + 1' if compact else ''}")
            self._length(length, compact, field.element == "str")
            self._source.line(f"w({text})")

    def _numbers(self, field: Field, value: str, items: str) -> None:
        source = self._source
        count = source.fresh("n")
        source.line(f"{items} = {value}")
        if self._layout.is_nullable(field):
            source.begin(f"if {items} is None:")
            source.line(f"{items} = ()")
            source.line(f"{count} = -1")
            source.end()
            source.begin("else:")
            source.line(f"{count} = len({items})")
            source.end()
        else:
            source.line(f"{count} = len({items})")
        code = "b" if field.element == "bool" else FIXED[field.element][0]
        self._run.append(_Array(code, self._layout.is_compact(field), count, items))

    # -- numbers

    def _check(self, condition: str, error: str) -> None:
        self._source.begin(f"if {condition}:")
        self._source.line(f"raise {error}")
        self._source.end()

    def _length(self, length: str, compact: bool, is_text: bool) -> None:
        """Writes a length, together with the run before it."""
        if not compact:
            self._run.append(_Number("h" if is_text else "i", length))
            self._flush()
            return
        long = f"{'string_length' if is_text else 'varint'}({length})"
        short = f"BYTE[{length}]"
        if any(isinstance(part, _Array) for part in self._run):
            self._flush()
        elif self._run:
            before = self._packed(self._run)
            short = self._packed([*self._run, _Number("B", length)])
            long = f"{before} + {long}"
            self._run.clear()
        self._source.line(f"w({short} if {length} < 128 else {long})")

    def _flush(self) -> None:
        if self._run:
            self._source.line(f"w({self._packed(self._run)})")
            self._run.clear()

    def _packed(self, run: list[_Number | _Array]) -> str:
        """An expression for the bytes of a run."""
        if any(isinstance(part, _Array) for part in run):
            return self._packed_arrays(run)
        formats = "".join(part.code for part in run)
        if set(formats) == {"x"}:
            return repr(bytes(len(formats)))
        values = ", ".join(part.value for part in run if isinstance(part, _Number) and part.value)
        return f"{self._source.packer('>' + formats)}({values})"

    def _packed_arrays(self, run: list[_Number | _Array]) -> str:
        values: list[str] = []
        for part in run:
            if isinstance(part, _Array):
                values += [f"{part.length} + 1" if part.compact else part.length, f"*{part.items}"]
            elif part.value:
                values.append(part.value)
        packers = self._source.fresh("P")
        self._source.names[packers] = _Packers(list(run))
        lengths = ", ".join(part.length for part in run if isinstance(part, _Array))
        return f"{packers}[{lengths}]({', '.join(values)})"
