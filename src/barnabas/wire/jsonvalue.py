"""Messages as JSON values, for people and for test vectors.

Bytes and records are ``"hex:…"``, a UUID is 32 hex digits, and names are those of the schema. A version shows
the fields that it has. A tagged field at its default is left out, as it is not written either.
"""

from typing import Any, TypeVar

from barnabas.wire.schema import FIXED, Field, Message, Struct, is_flexible, versions_of
from barnabas.wire.source import Layout

S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)

_RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
}
_HEX = "hex:"


def to_value(message: Message, version: int) -> dict[str, Any]:
    """What the message says in that version, as ``json.dumps`` takes it."""
    return _show_struct(message, _layout(type(message), version))


def from_value(cls: type[M], version: int, value: object) -> M:
    """The message of a JSON value; an absent field has its default. Raises ValueError, which names the field."""
    return _parse_struct(cls, value, _layout(cls, version), cls.__name__)


def _layout(cls: type[Message], version: int) -> Layout:
    if version not in versions_of(cls):
        raise ValueError(f"{cls.__name__} has versions {cls.versions}, not {version}")
    return Layout(version, is_flexible(cls, version))


def _show_struct(value: Struct, layout: Layout) -> dict[str, Any]:
    return {
        field.name: _show(getattr(value, field.name), field, field.kind, layout)
        for field in layout.present(type(value))
        if not (layout.is_tagged(field) and getattr(value, field.name) == field.default)
    }


def _show(value: Any, field: Field, kind: str, layout: Layout) -> Any:
    if value is None:
        return None
    match kind:
        case "array":
            return [_show(item, field, field.element, layout) for item in value]
        case "struct":
            return _show_struct(value, layout)
        case "bytes" | "records":
            return _HEX + bytes(value).hex()
        case "uuid":
            return bytes(value).hex()
    return value


def _parse_struct(cls: type[S], value: object, layout: Layout, path: str) -> S:
    if not isinstance(value, dict):
        raise ValueError(f"{path}: an object is needed, not {_brief(value)}")
    fields = {field.name: field for field in layout.present(cls)}
    for name in value:
        if name not in fields:
            raise ValueError(f"{path}: version {layout.version} has no field {name!r}")
    return cls(**{name: _parse_field(fields[name], item, layout, f"{path}.{name}") for name, item in value.items()})


def _parse_field(field: Field, value: object, layout: Layout, path: str) -> Any:
    if value is None:
        if not layout.is_nullable(field):
            raise ValueError(f"{path}: null is not allowed in version {layout.version}")
        return None
    if field.kind == "array":
        if not isinstance(value, list):
            raise ValueError(f"{path}: a list is needed, not {_brief(value)}")
        return [_parse(field, field.element, item, layout, f"{path}[{at}]") for at, item in enumerate(value)]
    return _parse(field, field.kind, value, layout, path)


def _parse(field: Field, kind: str, value: object, layout: Layout, path: str) -> Any:
    if kind == "struct":
        assert field.struct is not None
        return _parse_struct(field.struct, value, layout, path)
    if kind in ("bytes", "records", "uuid"):
        return _parse_hex(kind, value, path)
    if kind in _RANGES:
        return _parse_int(kind, value, path)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "float64" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{path}: a {kind} is needed, not {_brief(value)}")


def _parse_hex(kind: str, value: object, path: str) -> bytes:
    prefix = "" if kind == "uuid" else _HEX
    try:
        if isinstance(value, str) and value.startswith(prefix):
            raw = bytes.fromhex(value[len(prefix) :])
            if kind != "uuid" or len(raw) == FIXED["uuid"][1]:
                return raw
    except ValueError:
        pass
    wanted = "a UUID of 32 hex digits" if kind == "uuid" else f'"{_HEX}" and hex digits'
    raise ValueError(f"{path}: {wanted} is needed, not {_brief(value)}")


def _parse_int(kind: str, value: object, path: str) -> int:
    lowest, highest = _RANGES[kind]
    if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
        return value
    raise ValueError(f"{path}: an {kind} is needed, not {_brief(value)}")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
