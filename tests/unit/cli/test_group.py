"""Commands about consumer groups."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition

from barnabas.testing import EmbeddedBroker
from tests.conformance.groups import Member, fill, poll_until
from tests.unit.cli.command_line import json_lines, run


@pytest.fixture(autouse=True)
def broker(shared_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", shared_broker.bootstrap_servers)
    return shared_broker.bootstrap_servers


@pytest.fixture
def topic(new_topic: Callable[[], str], broker: str) -> str:
    """Two partitions with ten messages each, a second apart."""
    name = new_topic()
    run("topic", "create", name, "--partitions", "2")
    fill(broker, name, 2, 10)
    return name


@pytest.fixture
def member(topic: str, broker: str) -> Iterator[Member]:
    joined = Member(broker, topic, [topic], client_id="me")
    poll_until([joined], lambda: len(joined.owned) == 2, "it has its places")
    yield joined
    joined.close()


def offsets(group: str) -> dict[int, int]:
    (shown,) = json.loads(run("group", "describe", group, "--json").stdout)
    return {row["partition"]: row["committed_offset"] for row in shown["offsets"]}


def test_help_has_examples() -> None:
    for command in ("list", "describe", "reset-offsets", "delete"):
        assert "Examples:" in run("group", command, "--help").stdout
    assert "--group" in run("consume", "--help").stdout


def test_consume_in_a_group_goes_on_where_it_left_off(topic: str) -> None:
    first = json_lines(run("consume", topic, "--group", topic, "-n", "5", "--json"))
    assert len(first) == 5
    second = json_lines(run("consume", topic, "--group", topic, "--json"))
    assert len(second) == 15
    seen = {(message["partition"], message["offset"]) for message in first + second}
    assert seen == {(partition, offset) for partition in range(2) for offset in range(10)}
    assert run("consume", topic, "--group", topic).stdout == ""
    assert offsets(topic) == {0: 10, 1: 10}
    assert run("consume", topic, "--group", f"{topic}-late", "--offset", "latest").stdout == ""


def test_consume_in_a_group_refuses_places(topic: str) -> None:
    for extra in (["--partition", "0"], ["--offset", "3"], ["--from-time", "-1h"]):
        assert "group" in run("consume", topic, "--group", "g", *extra, code=2).stderr
    assert "There is no topic no-such-topic." in run("consume", "no-such-topic", "--group", "g", code=1).stderr


def test_groups_are_listed(topic: str, member: Member) -> None:
    listed = {item["name"]: item for item in json.loads(run("group", "list", "--json").stdout)}
    assert listed[topic] == {"name": topic, "state": "Stable", "type": "classic", "protocol": "consumer"}
    assert topic in run("group", "list", "--state", "STABLE").stdout
    assert topic not in run("group", "list", "--state", "empty").stdout


def test_a_group_is_described(topic: str, member: Member, broker: str) -> None:
    poll_until([member], lambda: len(member.read) == 20, "all is read")
    wanted = [TopicPartition(topic, 0, 10), TopicPartition(topic, 1, 4)]
    member.consumer.commit(offsets=wanted, asynchronous=False)
    (shown,) = json.loads(run("group", "describe", topic, "--json").stdout)
    assert (shown["state"], shown["assignor"], shown["coordinator"]) == ("Stable", "range", 1)
    (row,) = shown["members"]
    assert (row["client_id"], row["host"]) == ("me", "127.0.0.1")
    assert row["partitions"] == [f"{topic}-0", f"{topic}-1"]
    assert [each["lag"] for each in shown["offsets"]] == [0, 6]
    assert shown["offsets"][0]["lag_seconds"] == 0
    age_s = time.time() - (1_700_000_000 + 4)  # when the fifth message was written, as ``fill`` says
    assert 0 <= age_s - shown["offsets"][1]["lag_seconds"] < 600
    assert shown["offsets"][0]["member_id"] == row["member_id"]
    assert "joined" in shown["rebalances"][0]["cause"]
    text = run("group", "describe", topic).stdout
    for expected in ("LAG TIME", "CAUSE", "joined", "me", f"{topic}-1", "Stable"):
        assert expected in text
    assert "There is no group" in run("group", "describe", "nobody", code=1).stderr


def test_offsets_are_reset(topic: str) -> None:
    run("consume", topic, "--group", topic)
    dry = run("group", "reset-offsets", topic, "--to-earliest")
    assert "Nothing was changed" in dry.stderr
    assert offsets(topic) == {0: 10, 1: 10}
    told = json.loads(run("group", "reset-offsets", topic, "--to-earliest", "--execute", "--json").stdout)
    assert told["offsets"][0] == {"topic": topic, "partition": 0, "from": 10, "to": 0}
    assert offsets(topic) == {0: 0, 1: 0}
    run("group", "reset-offsets", topic, "--to-offset", "7", "--topic", f"{topic}:1", "--execute")
    assert offsets(topic) == {0: 0, 1: 7}
    run("group", "reset-offsets", topic, "--shift", "2", "--execute")
    assert offsets(topic) == {0: 2, 1: 9}
    run("group", "reset-offsets", topic, "--shift", "-100", "--execute")
    assert offsets(topic) == {0: 0, 1: 0}
    run("group", "reset-offsets", topic, "--to-time", str(1_700_000_000_000 + 3000), "--execute")
    assert offsets(topic) == {0: 3, 1: 3}
    run("group", "reset-offsets", topic, "--to-time", "-1s", "--execute")
    assert offsets(topic) == {0: 10, 1: 10}
    run("group", "reset-offsets", topic, "--to-offset", "99999", "--execute")
    assert offsets(topic) == {0: 10, 1: 10}, "never beyond the end"
    run("group", "reset-offsets", topic, "--to-latest", "--execute")
    assert offsets(topic) == {0: 10, 1: 10}


def test_a_new_group_can_be_placed(topic: str) -> None:
    group = f"{topic}-new"
    run("group", "reset-offsets", group, "--topic", topic, "--to-offset", "8", "--execute")
    assert len(run("consume", topic, "--group", group).stdout.splitlines()) == 4


def test_what_a_reset_refuses(topic: str, member: Member) -> None:
    assert "1 member" in run("group", "reset-offsets", topic, "--to-latest", "--execute", code=1).stderr
    assert "Give one of" in run("group", "reset-offsets", topic, code=2).stderr
    assert "Give one of" in run("group", "reset-offsets", topic, "--to-latest", "--to-earliest", code=2).stderr
    assert "There is no group" in run("group", "reset-offsets", "nobody", "--to-latest", code=1).stderr
    new = ["group", "reset-offsets", "nobody"]
    assert "nothing to shift" in run(*new, "--topic", topic, "--shift", "1", code=1).stderr
    assert "no partition 7" in run(*new, "--topic", f"{topic}:7", "--to-latest", code=1).stderr
    assert "not TOPIC" in run(*new, "--topic", f"{topic}:x", "--to-latest", code=2).stderr


def test_groups_are_deleted(topic: str) -> None:
    run("consume", topic, "--group", topic)
    run("group", "delete", topic, stdin="n\n", code=1)
    assert f"Deleted {topic}" in run("group", "delete", topic, "--yes").stdout
    assert f"There is no group {topic}." in run("group", "delete", topic, "--yes", code=1).stderr


def test_a_group_with_members_is_not_deleted(topic: str, member: Member) -> None:
    assert "has members: stop them first" in run("group", "delete", topic, "--yes", "--json", code=1).stderr
