"""What a message is: a class whose annotated fields are its schema.

A field's type says how it is written, its default what it is when a version does not carry it, and
markers in ``Annotated`` the rest:

    class FetchRequest(Message):
        api_key = 1
        versions = "4-18"
        flexible = "12+"
        replica_id: Annotated[int32, In("4-14")] = -1
        max_wait_ms: int32 = 0
        cluster_id: Annotated[str | None, In("12+"), Tag(0)] = None

Without ``In`` a field is in every version that its struct is in, and a type with ``| None`` may be null
in every version that has the field unless ``Null`` names fewer. One class serves all versions; the codec
takes the version. ``fields_of`` reads the schema back for the compiler and the JSON form.
"""

from collections.abc import Iterator
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec


class DecodeError(Exception):
    """Bytes that are not a message of that class and version. Nothing else is raised for any input."""


class EncodeError(Exception):
    """A message that cannot be written: null where it may not be, a number or a text too large."""


class Wire(NamedTuple):
    """How one value is written where the Python type alone does not say."""

    kind: str


# Lower case as in the schemas, and as the built-in types beside them.
# ruff: noqa: PYI042
int8: TypeAlias = Annotated[int, Wire("int8")]
int16: TypeAlias = Annotated[int, Wire("int16")]
int32: TypeAlias = Annotated[int, Wire("int32")]
int64: TypeAlias = Annotated[int, Wire("int64")]
uint16: TypeAlias = Annotated[int, Wire("uint16")]
uint32: TypeAlias = Annotated[int, Wire("uint32")]
uuid: TypeAlias = Annotated[bytes, Wire("uuid")]
"""Sixteen raw bytes."""


class RecordsSource(Protocol):
    """Records that are not in memory, such as a range of a file: passed through as a chunk of its own."""

    @property
    def size(self) -> int: ...


Buffer: TypeAlias = bytes | bytearray | memoryview
Chunk: TypeAlias = bytes | bytearray | memoryview | RecordsSource

Records: TypeAlias = Annotated[bytes | bytearray | memoryview, Wire("records")]
"""Record batches. Decoded as a view into the receive buffer, which must not outlive its handler."""

SentRecords: TypeAlias = Annotated[bytes | bytearray | memoryview | RecordsSource, Wire("records")]
"""Record batches of a response, which may come straight from a file."""

FIXED: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Kinds of a fixed size: struct format and bytes."""

_PLAIN: Final = {bool: "bool", float: "float64", str: "str", bytes: "bytes"}

EMPTY: Final[list[Any]] = []
"""The default of arrays. msgspec gives each message a list of its own."""


class Versions(NamedTuple):
    """A range of versions, both ends within."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def all(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))


ALL_VERSIONS: Final = Versions(0, 32767)
NO_VERSIONS: Final = Versions(0, -1)


def parse_versions(text: str) -> Versions:
    """Kafka's spelling: ``none``, ``3``, ``3+`` or ``3-7``."""
    if text == "none":
        return NO_VERSIONS
    first, dash, last = text.partition("-")
    if dash:
        return Versions(int(first), int(last))
    if text.endswith("+"):
        return Versions(int(text[:-1]), ALL_VERSIONS.last)
    return Versions(int(text), int(text))


class In(NamedTuple):
    """The versions that have a field."""

    versions: str


class Null(NamedTuple):
    """The versions in which a field may be null, where those are fewer than the ones that have it."""

    versions: str


class Tag(NamedTuple):
    """The field is tagged: written after the others and only where it is not its default (KIP-482)."""

    number: int


class Classic(NamedTuple):
    """The field keeps the old form in flexible versions too: the client id of the request header."""


class Struct(msgspec.Struct, gc=False):
    """Fields inside a message. Messages are trees, so the garbage collector need not walk them."""


class Message(Struct, gc=False):
    """A request, a response, or a record that is kept in a log or a file."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[str]
    flexible: ClassVar[str] = "none"
    """Versions with compact lengths and tagged fields."""
    served_by: ClassVar[tuple[str, ...]] = ()
    """Of a request: the listeners that take it, ``broker`` and ``controller``."""
    latest_unstable: ClassVar[bool] = False
    """Of a request: the last version is not yet offered by Kafka unless asked to."""


class Field(msgspec.Struct, frozen=True):
    """One field, as the compiler wants it."""

    name: str
    kind: str
    """A kind of FIXED, or ``str``, ``bytes``, ``records``, ``struct``, ``array``."""
    element: str
    """Of an array: the kind of its elements."""
    struct: type[Struct] | None
    """The class of a struct, or of an array's elements."""
    versions: Versions
    null: Versions
    tag: int | None
    classic: bool
    default: Any
    """Never changed: arrays and structs are compared with it, and made anew where they are needed."""


_fields: dict[type[Struct], tuple[Field, ...]] = {}


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """The schema of a class, in the order of its fields."""
    found = _fields.get(cls)
    if found is None:
        annotations = cls.__annotations__
        if any(isinstance(annotation, str) for annotation in annotations.values()):
            annotations = get_type_hints(cls, include_extras=True)
        blank = cls()
        found = tuple(_field(name, annotations[name], getattr(blank, name)) for name in cls.__struct_fields__)
        _fields[cls] = found
    return found


def _field(name: str, annotation: Any, default: Any) -> Field:
    """Reads one annotation."""
    inner, markers = _unwrap(annotation)
    inner, nullable = _without_none(inner)
    inner, more = _unwrap(inner)
    kind, element, struct = _kind(inner, (*markers, *more))
    versions = null = ALL_VERSIONS
    if not nullable:
        null = NO_VERSIONS
    tag, classic = None, False
    for marker in markers:
        match marker:
            case In():
                versions = parse_versions(marker.versions)
            case Null():
                null = parse_versions(marker.versions)
            case Tag():
                tag = marker.number
            case Classic():
                classic = True
    return Field(name, kind, element, struct, versions, null, tag, classic, default)


def _unwrap(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(annotation) is Annotated:
        inner, *markers = get_args(annotation)
        return inner, tuple(markers)
    return annotation, ()


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The type beside ``None``; a union of several others is that of Records, told by its marker."""
    arguments = get_args(annotation)
    if type(None) not in arguments:
        return annotation, False
    return next(argument for argument in arguments if argument is not type(None)), True


def _kind(inner: Any, markers: tuple[Any, ...]) -> tuple[str, str, type[Struct] | None]:
    for marker in markers:
        if isinstance(marker, Wire):
            return marker.kind, "", None
    if get_origin(inner) is list:
        element_type, element_markers = _unwrap(get_args(inner)[0])
        kind, _, struct = _kind(element_type, element_markers)
        return "array", kind, struct
    if inner in _PLAIN:
        return _PLAIN[inner], "", None
    return "struct", "", inner


def versions_of(cls: type[Message]) -> Versions:
    return parse_versions(cls.versions)


def is_flexible(cls: type[Message], version: int) -> bool:
    return version in parse_versions(cls.flexible)
