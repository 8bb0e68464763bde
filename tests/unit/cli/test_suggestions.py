"""Misspelt commands, topics, groups and settings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.testing import EmbeddedBroker
from tests.unit.cli.command_line import run


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["topi", "list"], "No such command 'topi'. Did you mean topic?"),
        (["topic", "lst"], "No such command 'lst'. Did you mean list?"),
        (["group", "descibe"], "No such command 'descibe'. Did you mean describe?"),
        (["log", "dmup"], "No such command 'dmup'. Did you mean dump?"),
        (["wire", "decod"], "No such command 'decod'. Did you mean decode or encode?"),
        (["bench", "prduce"], "No such command 'prduce'. Did you mean produce?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
    ],
)
def test_a_misspelt_command(words: list[str], hint: str) -> None:
    assert hint in run(*words, code=2).stderr


@pytest.mark.parametrize(
    "command",
    [
        "topic delete NAME --yes",
        "topic describe NAME",
        "topic alter NAME --partitions 9",
        "topic alter NAME --config retention.ms=5",
        "topic alter NAME --delete-config retention.ms",
        "consume NAME",
        "consume NAME --group readers",
        "group reset-offsets new --topic NAME --to-earliest",
    ],
)
def test_a_misspelt_topic(command: str, shared_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic, address = f"suggested-{new_topic()}", shared_broker.bootstrap_servers
    run("topic", "create", topic, "-b", address)
    told = run(*command.replace("NAME", topic[1:]).split(), "-b", address, code=1).stderr
    assert told.startswith(f"Error: There is no topic {topic[1:]}. Did you mean {topic}")


def test_a_topic_with_no_name_near_it(shared_broker: EmbeddedBroker) -> None:
    told = run("topic", "delete", "%%%", "--yes", "-b", shared_broker.bootstrap_servers, code=1).stderr
    assert told == "Error: There is no topic %%%. List them with: barnabas topic list\n"


@pytest.mark.parametrize("command", ["group describe NAME", "group delete NAME --yes"])
def test_a_misspelt_group(command: str, shared_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic, address = new_topic(), shared_broker.bootstrap_servers
    run("topic", "create", topic, "-b", address)
    group = f"billing-{topic}"
    run("group", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute", "-b", address)
    told = run(*command.replace("NAME", group[1:]).split(), "-b", address, code=1).stderr
    assert told.startswith(f"Error: There is no group {group[1:]}. Did you mean {group}")


@pytest.mark.parametrize(
    "command",
    [
        "topic create NAME-2 --config cleanup.polcy=compact",
        "topic alter NAME --config cleanup.polcy=compact",
        "topic alter NAME --delete-config cleanup.polcy",
    ],
)
def test_a_misspelt_topic_setting(command: str, shared_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic, address = new_topic(), shared_broker.bootstrap_servers
    run("topic", "create", topic, "-b", address)
    told = run(*command.replace("NAME", topic).split(), "-b", address, code=1).stderr
    assert told == "Error: Topics have no setting cleanup.polcy. Did you mean cleanup.policy?\n"


def test_a_wrong_value_is_still_the_brokers_answer(shared_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    address = shared_broker.bootstrap_servers
    told = run("topic", "create", new_topic(), "-c", "retention.ms=soon", "-b", address, code=1).stderr
    assert "Invalid value soon for configuration retention.ms" in told
