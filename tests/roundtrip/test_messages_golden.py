"""Every message that Kafka wrote is read to its value and written to its bytes."""

from typing import Any

import pytest

from barnabas.wire import catalogue, codec, jsonvalue
from tests.fuzz.messages import Golden, golden

BY_NAME: dict[str, list[Golden]] = {}
for row in golden():
    BY_NAME.setdefault(row.name, []).append(row)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_bytes_are_read_and_written_again(name: str) -> None:
    for row in BY_NAME[name]:
        message, end = codec.decode(row.cls, row.version, row.raw)
        assert end == len(row.raw)
        if not row.has_unknown_tags:
            assert codec.encode_bytes(message, row.version) == row.raw


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_values_are_those_of_the_bytes(name: str) -> None:
    for row in BY_NAME[name]:
        given = jsonvalue.from_value(row.cls, row.version, row.value)
        if not row.has_unknown_tags:
            assert codec.encode_bytes(given, row.version) == row.raw
        message, _ = codec.decode(row.cls, row.version, row.raw)
        assert message == given or "nan" in repr(given)  # which is not equal to itself
        assert contains(row.value, jsonvalue.to_value(message, row.version))


def contains(given: Any, shown: Any) -> bool:
    """Whether what we show is in what was given, which also spells out some tagged fields at their default."""
    if isinstance(given, dict):
        return all(name in given and contains(given[name], item) for name, item in shown.items())
    if isinstance(given, list):
        return len(given) == len(shown) and all(map(contains, given, shown))
    return repr(given) == repr(shown)


def test_every_message_has_examples() -> None:
    assert set(BY_NAME) == set(catalogue.names())
