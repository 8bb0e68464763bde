"""Settings: what is parsed, what is refused and how, and that the keys and defaults are Kafka's."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from barnabas.model.broker_settings import (
    TIME_ALIASES,
    BrokerSettings,
    all_broker_settings,
    canonical,
    topic_defaults,
)
from barnabas.model.kafka_settings import WITHOUT_EFFECT, is_known
from barnabas.model.settings import (
    INT_MAX,
    LONG_MAX,
    InvalidSetting,
    Setting,
    SettingType,
    at_least,
    between,
    described,
    each_of,
    one_of,
)
from barnabas.model.topic_settings import TopicSettings

DATA = Path(__file__).parents[2] / "data"
"""Kafka 4.3.1's own settings, read off its classes."""

OF_OUR_OWN = "barnabas."

DERIVED = {"log.flush.interval.ms", "log.retention.ms", "log.roll.ms", "log.roll.jitter.ms"}
"""Null in Kafka, where a setting in a coarser unit stands behind each; ours have that one's value."""

OTHER_TYPE = {"listener.security.protocol.map": SettingType.LIST}
"""Strings in Kafka that its code splits into lists."""


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


def kafka_text(default: str) -> str | None:
    if default == "null":
        return None
    if default.startswith("["):
        return default[1:-1].replace(", ", ",")
    return default


def entry(kind: SettingType, **more: object) -> Setting:
    arguments: dict[str, object] = {"default": 0, "documentation": "", **more}
    return Setting(key="some.key", type=kind, **arguments)  # type: ignore[arg-type]


# Against Kafka


@pytest.mark.parametrize("row", rows("topic_configs.csv"), ids=lambda row: row["name"])
def test_topic_setting_is_kafkas(row: dict[str, str]) -> None:
    _, ours = described(TopicSettings)[row["name"]]
    assert ours.type.name == row["type"]
    assert ours.render(ours.default) == kafka_text(row["default"])


def test_topics_have_no_settings_but_kafkas() -> None:
    assert set(described(TopicSettings)) == {row["name"] for row in rows("topic_configs.csv")}


@pytest.mark.parametrize("row", rows("broker_configs.csv"), ids=lambda row: row["name"])
def test_broker_setting_is_kafkas(row: dict[str, str]) -> None:
    """Known with the same type and default, or with what Kafka has beside ours; or known to have no effect."""
    key = row["name"]
    ours = all_broker_settings().get(key)
    if ours is None:
        assert is_known(key) or key in TIME_ALIASES
        return
    assert ours.type == OTHER_TYPE.get(key, SettingType[row["type"]])
    kafka = kafka_text(row["default"])
    if key in DERIVED:
        assert kafka is None
    elif ours.kafka_default is not None:
        assert ours.kafka_default == kafka
        assert ours.render(ours.default) != kafka
    else:
        assert ours.render(ours.default) == kafka


def test_brokers_have_no_settings_but_kafkas_and_our_own() -> None:
    kafkas = {row["name"] for row in rows("broker_configs.csv")}
    others = {row["name"] for row in rows("broker_configs_other.csv")}
    assert {key for key in all_broker_settings() if not key.startswith(OF_OUR_OWN)} <= kafkas | others
    assert kafkas | others >= WITHOUT_EFFECT
    assert kafkas >= set(TIME_ALIASES)


@pytest.mark.parametrize("row", rows("broker_configs_other.csv"), ids=lambda row: row["name"])
def test_undocumented_settings_of_kafka_are_known(row: dict[str, str]) -> None:
    """Internal settings, and those of classes that read server.properties themselves."""
    assert is_known(row["name"]) or row["name"] in all_broker_settings()


def test_a_setting_has_one_place() -> None:
    assert not WITHOUT_EFFECT & set(all_broker_settings())
    assert not set(TIME_ALIASES) & set(all_broker_settings())
    assert not set(described(BrokerSettings)) & set(topic_defaults())


def test_defaults_of_coarser_units_agree_with_ours() -> None:
    kafka = {row["name"]: row["default"] for row in rows("broker_configs.csv")}
    for key in ("log.retention.hours", "log.roll.hours", "log.roll.jitter.hours"):
        target, factor = TIME_ALIASES[key]
        assert all_broker_settings()[target].default == int(kafka[key]) * factor


@pytest.mark.parametrize("cls", [TopicSettings, BrokerSettings])
def test_every_default_passes_its_own_check(cls: type[TopicSettings | BrokerSettings]) -> None:
    for _, described_setting in described(cls).values():
        text = described_setting.render(described_setting.default)
        assert described_setting.parse(text) == described_setting.default
        assert described_setting.documentation.endswith(".")


def test_every_topic_setting_with_a_synonym_has_a_dynamic_broker_setting() -> None:
    for _, topic in described(TopicSettings).values():
        if topic.synonym is not None:
            broker = all_broker_settings()[topic.synonym]
            assert broker.default == topic.default
            assert broker.dynamic


def test_names_that_kafka_does_not_know_are_not_known() -> None:
    assert not is_known("no.such.setting")
    assert not is_known("barnabas.durable")
    assert is_known("listener.name.internal.ssl.keystore.location")


# Parsing


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SettingType.BOOLEAN, "true", True),
        (SettingType.BOOLEAN, " FALSE ", False),
        (SettingType.INT, "-5", -5),
        (SettingType.INT, " 42 ", 42),
        (SettingType.INT, str(INT_MAX), INT_MAX),
        (SettingType.SHORT, "32767", 32767),
        (SettingType.LONG, str(LONG_MAX), LONG_MAX),
        (SettingType.DOUBLE, "0.5", 0.5),
        (SettingType.STRING, "  text ", "text"),
        (SettingType.LIST, "a, b,c", ("a", "b", "c")),
        (SettingType.LIST, "", ()),
        (SettingType.PASSWORD, "secret", "secret"),
    ],
)
def test_parsing(kind: SettingType, text: str, value: object) -> None:
    assert entry(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SettingType.BOOLEAN, "yes"),
        (SettingType.BOOLEAN, ""),
        (SettingType.INT, "1.5"),
        (SettingType.INT, "1_000"),
        (SettingType.INT, str(INT_MAX + 1)),
        (SettingType.INT, str(-INT_MAX - 2)),
        (SettingType.SHORT, "32768"),
        (SettingType.LONG, str(LONG_MAX + 1)),
        (SettingType.LONG, "9" * 5000),
        (SettingType.LONG, "five"),
        (SettingType.DOUBLE, "half"),
        (SettingType.DOUBLE, "1_0.0"),
    ],
)
def test_what_cannot_be_parsed_names_setting_value_and_type(kind: SettingType, text: str) -> None:
    with pytest.raises(InvalidSetting) as problem:
        entry(kind).parse(text)
    boolean = kind is SettingType.BOOLEAN
    reason = "Expected value to be either true or false" if boolean else f"Not a number of type {kind.name}"
    assert str(problem.value) == f"Invalid value {text} for configuration some.key: {reason}"
    assert (problem.value.key, problem.value.value) == ("some.key", text)


def test_null_is_a_value_only_where_it_is_the_default() -> None:
    assert entry(SettingType.STRING, default=None).parse(None) is None
    with pytest.raises(InvalidSetting, match=r"None for configuration some\.key: Value must be non-null"):
        entry(SettingType.STRING, default="").parse(None)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (at_least(1), 1, 0),
        (between(0, 1), 1, 1.5),
        (between(0, 1), 0.5, float("nan")),
        (one_of("a", "b"), "b", "c"),
        (each_of("a", "b"), ("b", "a"), ("a", "c")),
        (each_of("a", "b"), ("a",), ()),
        (each_of("a", "b"), ("a",), ("a", "")),
        (each_of("a", "b", may_be_empty=True), (), ("a", "c")),
    ],
)
def test_checks(check: object, good: object, bad: object) -> None:
    assert callable(check)
    assert check(good) is None
    assert check(bad)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("retention.ms", "-2"),
        ("segment.bytes", "1048575"),
        ("cleanup.policy", "shred"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("message.timestamp.type", "createtime"),
        ("min.insync.replicas", "0"),
        ("flush.messages", "0"),
        ("preallocate", "maybe"),
    ],
)
def test_a_refused_topic_setting_names_setting_and_value(key: str, text: str) -> None:
    with pytest.raises(InvalidSetting) as problem:
        TopicSettings.parse({key: text})
    assert f"Invalid value {text} for configuration {key}: " in str(problem.value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("node.id", "-1"),
        ("num.partitions", "0"),
        ("barnabas.validation", "none"),
        ("fetch.max.bytes", "12"),
        ("process.roles", "king"),
    ],
)
def test_a_refused_broker_setting_names_setting_and_value(key: str, text: str) -> None:
    with pytest.raises(InvalidSetting) as problem:
        BrokerSettings.parse({key: text})
    assert f"Invalid value {text} for configuration {key}: " in str(problem.value)


def test_a_class_takes_its_own_keys_and_passes_over_others() -> None:
    parsed = TopicSettings.parse({"retention.ms": "5", "node.id": "7"})
    assert parsed == TopicSettings(retention_ms=5)


def test_values_over_defaults() -> None:
    defaults = TopicSettings(flush_ms=3, retention_ms=9)
    assert TopicSettings.parse({"retention.ms": "5"}, defaults) == TopicSettings(flush_ms=3, retention_ms=5)


def test_rendered_values_parse_to_themselves() -> None:
    settings = TopicSettings(cleanup_policy=("compact", "delete"), preallocate=True, min_cleanable_dirty_ratio=0.25)
    values = {key: entry.render(getattr(settings, name)) for key, (name, entry) in described(TopicSettings).items()}
    texts = {key: text for key, text in values.items() if text is not None}
    assert texts["cleanup.policy"] == "compact,delete"
    assert texts["preallocate"] == "true"
    assert TopicSettings.parse(texts) == settings


def test_the_node_and_its_folders_by_either_name() -> None:
    assert BrokerSettings.parse({"node.id": "4"}).id == 4
    assert BrokerSettings.parse({"broker.id": "5"}).id == 5
    assert BrokerSettings.parse({"log.dir": "/a"}).data_directories == ("/a",)
    assert BrokerSettings.parse({"log.dir": "/a", "log.dirs": "/b, /c"}).data_directories == ("/b", "/c")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (TopicSettings(), None),
        (TopicSettings(min_compaction_lag_ms=5, max_compaction_lag_ms=5), None),
        (TopicSettings(min_compaction_lag_ms=6, max_compaction_lag_ms=5), "min.compaction.lag.ms (6)"),
        (TopicSettings(remote_storage_enable=True), "remote.storage.enable=true"),
    ],
)
def test_conflicts_between_topic_settings(settings: TopicSettings, problem: str | None) -> None:
    conflict = settings.conflict()
    assert conflict is None if problem is None else problem in str(conflict)


# Times in several units


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"log.retention.hours": "2"}, {"log.retention.ms": "7200000"}),
        ({"log.retention.minutes": "2"}, {"log.retention.ms": "120000"}),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {"log.retention.ms": "180000"}),
        ({"log.retention.ms": "7", "log.retention.minutes": "3"}, {"log.retention.ms": "7"}),
        ({"log.retention.hours": "-1"}, {"log.retention.ms": "-1"}),
        ({"log.roll.hours": "1", "log.roll.jitter.hours": "0"}, {"log.roll.ms": "3600000", "log.roll.jitter.ms": "0"}),
        ({"num.partitions": "3"}, {"num.partitions": "3"}),
        ({}, {}),
    ],
)
def test_the_finest_unit_wins(given: dict[str, str], result: dict[str, str]) -> None:
    assert canonical(given) == result


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("log.retention.hours", "two"),
        ("log.retention.minutes", "99999999999"),
        ("log.roll.hours", "0"),
        ("log.roll.jitter.hours", "-1"),
    ],
)
def test_a_refused_time_names_the_setting_that_was_given(key: str, text: str) -> None:
    for more in ({}, {TIME_ALIASES[key][0]: "5"}):
        with pytest.raises(InvalidSetting) as problem:
            canonical({key: text, **more})
        assert f"Invalid value {text} for configuration {key}: " in str(problem.value)
