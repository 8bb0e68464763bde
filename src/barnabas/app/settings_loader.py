"""Settings from server.properties, the environment and the command line; later ones override earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from barnabas.model import kafka_settings
from barnabas.model.broker_settings import TIME_ALIASES, BrokerSettings, all_broker_settings, canonical
from barnabas.model.errors import StartError
from barnabas.model.settings import InvalidSetting

ENVIRONMENT_PREFIX = "BARNABAS_"
NOT_SETTINGS = frozenset({"BARNABAS_BOOTSTRAP"})
"""Variables of the command line's own."""


class LoadedSettings(Struct, frozen=True):
    settings: BrokerSettings
    texts: Mapping[str, str]
    """What was given, by key: the static source of topics' defaults and of DescribeConfigs."""
    ignored: tuple[str, ...]
    """Settings that Kafka knows and that have no effect here."""


def load(
    *, file: str | None = None, environment: Mapping[str, str] | None = None, given: Iterable[tuple[str, str]] = ()
) -> LoadedSettings:
    texts: dict[str, str] = {}
    if file is not None:
        texts.update(_from_file(file))
    texts.update(_from_environment(environment or {}))
    texts.update(given)
    ignored = [key for key in texts if not _has_effect(key)]
    for key in ignored:
        if not kafka_settings.is_known(key):
            raise StartError(f"Unknown setting {key}: neither Kafka nor Barnabas has one of that name.{_nearest(key)}")
    try:
        effective = canonical({key: text for key, text in texts.items() if key not in ignored})
        known = all_broker_settings()
        for key, text in effective.items():
            known[key].parse(text)
        return LoadedSettings(BrokerSettings.parse(effective), effective, tuple(sorted(ignored)))
    except InvalidSetting as problem:
        raise StartError(f"{problem}.") from None


def _has_effect(key: str) -> bool:
    return key in TIME_ALIASES or key in all_broker_settings()


def _nearest(key: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 -- only for the message of an error

    near = get_close_matches(key, [*all_broker_settings(), *TIME_ALIASES, *kafka_settings.WITHOUT_EFFECT], 1)
    return f" Did you mean {near[0]}?" if near else ""


def _from_file(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as stream:
            return parse_properties(stream.read())
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise StartError(f"Cannot read the settings file {path}: {reason.lower()}.") from None


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties as server.properties files use them: comments, key=value or key: value, continued lines."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        entry = line.strip()
        if not entry or entry[0] in "#!":
            continue
        while entry.endswith("\\") and not entry.endswith("\\\\"):
            entry = entry[:-1] + next(lines, "").strip()
        cut = min((at for at in (entry.find("="), entry.find(":")) if at >= 0), default=-1)
        key, value = (entry, "") if cut < 0 else (entry[:cut], entry[cut + 1 :])
        found[key.strip()] = value.strip().replace("\\\\", "\\")
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """BARNABAS_LOG_RETENTION_MS is log.retention.ms; BARNABAS_DURABLE is barnabas.durable."""
    found = {}
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
            own = f"barnabas.{key}"
            found[own if own in all_broker_settings() else key] = value
    return found
