"""Source text in the making: what the compilers of readers and writers share.

A codec is a function of Python source, built for one class and one version: no loop over fields, no
branch on the version. Everything that the source names (formats, classes, helpers) is put into the
function's globals.
"""

import struct
from collections.abc import Callable
from typing import Any

from barnabas.wire.schema import FIXED, Field, Struct, fields_of


class Source:
    """Lines with indentation, names that are used once, and the globals that the lines refer to."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = dict(names)
        self._lines: list[str] = []
        self._indent = 0
        self._count = 0
        self._constants: dict[tuple[str, Any], str] = {}

    def line(self, text: str) -> None:
        self._lines.append(" " * self._indent + text)

    def begin(self, text: str) -> None:
        self.line(text)
        self._indent += 1

    def end(self) -> None:
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, key: Any, make: Callable[[], Any]) -> str:
        """The name of a global, made once for a key."""
        name = self._constants.get((prefix, key))
        if name is None:
            name = self._constants[prefix, key] = self.fresh(prefix)
            self.names[name] = make()
        return name

    def struct_class(self, cls: type[Struct]) -> str:
        return self.constant("C", cls, lambda: cls)

    def unpacker(self, formats: str) -> str:
        return self.constant("u", formats, lambda: struct.Struct(formats).unpack_from)

    def packer(self, formats: str) -> str:
        return self.constant("p", formats, lambda: struct.Struct(formats).pack)

    def compile(self, function: str, title: str) -> Any:
        exec(compile("\n".join(self._lines), f"<{title}>", "exec"), self.names)
        return self.names[function]


class Layout:
    """What a version makes of the fields of a message: which there are, and in what form."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def present(self, cls: type[Struct]) -> list[Field]:
        return [field for field in fields_of(cls) if self.version in field.versions]

    def plain(self, cls: type[Struct]) -> list[Field]:
        return [field for field in self.present(cls) if not self.is_tagged(field)]

    def tagged(self, cls: type[Struct]) -> list[Field]:
        return sorted((field for field in self.present(cls) if self.is_tagged(field)), key=lambda field: field.tag or 0)

    def is_tagged(self, field: Field) -> bool:
        return self.flexible and field.tag is not None

    def is_compact(self, field: Field) -> bool:
        return self.flexible and not field.classic

    def is_nullable(self, field: Field) -> bool:
        return self.version in field.null

    def smallest(self, cls: type[Struct]) -> int:
        """The fewest bytes that a struct can take, which bounds how many of them a count can promise."""
        fewest = sum(self._smallest_field(field) for field in self.plain(cls))
        return max(1, fewest + self.flexible)

    def smallest_element(self, field: Field) -> int:
        if field.struct is not None:
            return self.smallest(field.struct)
        if field.element in FIXED:
            return FIXED[field.element][1]
        return 1 if self.flexible else 2

    def _smallest_field(self, field: Field) -> int:
        if field.kind in FIXED:
            return FIXED[field.kind][1]
        if field.kind == "struct":
            assert field.struct is not None
            return 1 if self.is_nullable(field) else self.smallest(field.struct)
        if self.is_compact(field):
            return 1
        return 2 if field.kind == "str" else 4
