"""Definitions of settings: key, type, default, documentation and validator in one place.

Settings have Kafka's names. Frozen classes list them as fields made by ``setting``; parsing, validation,
DescribeConfigs and the documentation page are derived from those classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self, TypeVar

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class SettingType(IntEnum):
    """Numbers are those of the DescribeConfigs response (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, _ = SettingType


class InvalidSetting(ValueError):
    """A value that a setting does not take. The message names the setting and the value."""

    def __init__(self, key: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {key}: {reason}")
        self.key = key
        self.value = value


Check = Callable[[Any], str | None]
"""Says what is wrong with a parsed value, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    key: str
    type: SettingType
    default: Any
    documentation: str
    check: Check | None = None
    synonym: str | None = None
    """The broker setting that gives a topic setting its default."""
    dynamic: bool = False
    """Whether a broker takes a new value while it runs."""
    kafka_default: Any = None
    """What Kafka has, where our default differs."""

    def parse(self, text: str | None) -> Any:
        if text is None:
            if self.default is not None:
                raise InvalidSetting(self.key, text, "Value must be non-null")
            return None
        value = _parse(self.key, self.type, text.strip())
        problem = self.check(value) if self.check else None
        if problem:
            raise InvalidSetting(self.key, text, problem)
        if self.type is not SettingType.LIST:
            return value
        parts = filter(None, value)
        return tuple(parts if self.check is None else dict.fromkeys(parts))  # a choice that is made twice is made

    def normal(self, text: str | None) -> str | None:
        """A value as it is shown, however it was written; what cannot be parsed is shown as it stands."""
        try:
            return self.render(self.parse(text))
        except InvalidSetting:
            return text

    def render(self, value: Any) -> str | None:
        """As Kafka writes it in DescribeConfigs."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return str(value).replace("e+", "E")
        return str(value)


def _parse(key: str, kind: SettingType, text: str) -> Any:
    try:
        match kind:
            case SettingType.BOOLEAN:
                return {"true": True, "false": False}[text.lower()]
            case SettingType.INT:
                return _within(text, INT_MAX)
            case SettingType.SHORT:
                return _within(text, (1 << 15) - 1)
            case SettingType.LONG:
                return _within(text, LONG_MAX)
            case SettingType.DOUBLE:
                return float(_plain(text))
            case SettingType.LIST:
                return tuple(part.strip() for part in text.split(",")) if text else ()
            case _:
                return text
    except KeyError:
        raise InvalidSetting(key, text, "Expected value to be either true or false") from None
    except ValueError:
        raise InvalidSetting(key, text, f"Not a number of type {kind.name}") from None


def _plain(text: str) -> str:
    """Python takes underscores in numbers; Kafka does not, and a file must mean the same to both."""
    if "_" in text:
        raise ValueError(text)
    return text


def _within(text: str, maximum: int) -> int:
    number = int(_plain(text))
    if not -maximum - 1 <= number <= maximum:
        raise ValueError(number)
    return number


def at_least(minimum: float) -> Check:
    return lambda value: None if value >= minimum else f"Value must be at least {minimum}"


def between(minimum: float, maximum: float) -> Check:
    return lambda value: None if minimum <= value <= maximum else f"Value must be between {minimum} and {maximum}"


def one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"String must be one of: {', '.join(allowed)}"


def each_of(*allowed: str, may_be_empty: bool = False) -> Check:
    def check(value: tuple[str, ...]) -> str | None:
        if not value:
            return None if may_be_empty else f"Value must contain at least one of: {', '.join(allowed)}"
        if "" in value:
            return "Configuration values must not be empty"
        return None if set(value).issubset(allowed) else f"String must be one of: {', '.join(allowed)}"

    return check


T = TypeVar("T")


def setting(kind: SettingType, default: T, documentation: str, check: Check | None = None, **more: Any) -> T:
    """A field of a settings class. Its key is the field's name with dots, unless ``key`` names another."""
    given = {"type": kind, "default": default, "documentation": documentation, "check": check, **more}
    return field(default=default, metadata=given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Base of the settings classes."""

    @classmethod
    def parse(cls, texts: Mapping[str, str], defaults: Self | None = None) -> Self:
        """Values by Kafka's keys over ``defaults``; keys of other classes are passed over."""
        known = described(cls)
        given = {known[key][0]: known[key][1].parse(text) for key, text in texts.items() if key in known}
        return dataclasses.replace(defaults, **given) if defaults is not None else cls(**given)


_described: dict[type[Settings], dict[str, tuple[str, Setting]]] = {}


def described(cls: type[Settings]) -> dict[str, tuple[str, Setting]]:
    """Kafka's key -> (attribute, setting) of a settings class, in the order of its text."""
    found = _described.get(cls)
    if found is None:
        made = {item.name: Setting(**_with_key(item)) for item in dataclasses.fields(cls) if item.metadata}
        found = _described[cls] = {entry.key: (name, entry) for name, entry in made.items()}
    return found


def _with_key(item: dataclasses.Field[Any]) -> dict[str, Any]:
    return {"key": item.name.replace("_", "."), **item.metadata}
