"""The error codes in a response, found by its schema: for counting errors by code."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.wire.schema import Message, Struct, fields_of

Find = Callable[[Struct, list[int]], None]

_finders: dict[type[Struct], Find | None] = {}


def errors_in(response: Message) -> list[int]:
    """All codes that are not 0, in the order of the schema."""
    cls = type(response)
    if cls not in _finders:
        _finders[cls] = _finder(cls)
    find = _finders[cls]
    found: list[int] = []
    if find is not None:
        find(response, found)
    return found


def _finder(cls: type[Struct]) -> Find | None:
    """None where neither the class nor what is in it has error codes."""
    has_own = any(field.name == "error_code" for field in fields_of(cls))
    inner: list[tuple[str, bool, Find]] = []
    for field in fields_of(cls):
        finder = _finder(field.struct) if field.struct is not None else None
        if finder is not None:
            inner.append((field.name, field.kind == "array", finder))
    if not has_own and not inner:
        return None

    def find(value: Struct, found: list[int]) -> None:
        if has_own and value.error_code:  # type: ignore[attr-defined]
            found.append(value.error_code)  # type: ignore[attr-defined]
        for name, is_array, find_inner in inner:
            held = getattr(value, name)
            if is_array:
                for item in held or ():
                    find_inner(item, found)
            elif held is not None:
                find_inner(held, found)

    return find
