"""What a session is built with."""

from __future__ import annotations

import pytest

from barnabas.spark.session import EXECUTOR_JAVA_OPTIONS, JAVA_OPTIONS, UNSAFE_ARROW, local_cores, settings_for


def test_the_users_settings_come_first() -> None:
    found = settings_for("local[3]", {"spark.sql.session.timeZone": "Europe/Rome", "spark.ui.enabled": True})
    assert found["spark.sql.session.timeZone"] == "Europe/Rome"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.sql.shuffle.partitions"] == "3"


def test_arrows_checks_are_on_unless_asked_otherwise() -> None:
    found = settings_for("local[2]", {JAVA_OPTIONS: "-Xss4m"})
    assert found[JAVA_OPTIONS] == "-Xss4m"
    assert not [name for name, value in found.items() if "unsafe" in name.lower() or "unsafe" in value]


def test_options_of_java_add_up_and_the_users_are_the_last_word() -> None:
    found = settings_for("spark://host:7077", {JAVA_OPTIONS: "-Xss4m"}, unsafe_arrow=True)
    assert found[JAVA_OPTIONS] == f"{UNSAFE_ARROW} -Xss4m"
    assert found[EXECUTOR_JAVA_OPTIONS] == UNSAFE_ARROW


def test_a_server_of_spark_connect_has_settings_of_its_own() -> None:
    assert settings_for("sc://host:15002", {"spark.a": 1}) == {"spark.a": "1"}


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[4]", 4), ("local[4, 2]", 4), ("spark://h:1", 0)])
def test_cores_of_a_local_master(master: str, cores: int) -> None:
    assert local_cores(master) == cores
