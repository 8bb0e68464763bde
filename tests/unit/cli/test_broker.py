"""Commands that talk to a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from barnabas.testing import EmbeddedBroker
from tests.unit.cli.command_line import json_lines, run


@pytest.fixture
def topic(new_topic: Callable[[], str], broker: str) -> str:
    name = new_topic()
    run("topic", "create", name, "--partitions", "2")
    return name


@pytest.fixture(autouse=True)
def broker(shared_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", shared_broker.bootstrap_servers)
    return shared_broker.bootstrap_servers


def test_a_topic_is_created_once(new_topic: Callable[[], str]) -> None:
    name = new_topic()
    assert "with 3 partitions" in run("topic", "create", name, "-p", "3", "-c", "retention.ms=60000").stdout
    assert "already exists" in run("topic", "create", name, code=1).stderr
    assert "exists already" in run("topic", "create", name, "--if-not-exists").stdout
    assert json.loads(run("topic", "create", name, "--if-not-exists", "--json").stdout)["created"] is False
    assert "no setting no.such" in run("topic", "create", new_topic(), "-c", "no.such=1", code=1).stderr
    assert "Error: " in run("topic", "create", new_topic(), "-c", "nonsense", code=2).stderr


def test_topics_are_listed(topic: str) -> None:
    assert topic in run("topic", "list").stdout
    listed = {item["name"]: item for item in json.loads(run("topic", "list", "--json").stdout)}
    assert listed[topic] == {"name": topic, "partitions": 2, "replication_factor": 1, "internal": False}


def test_a_topic_is_described(topic: str) -> None:
    run("topic", "alter", topic, "--config", "retention.ms=60000")
    run("produce", topic, "-m", "one", "-p", "1")
    (shown,) = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert [part["latest_offset"] for part in shown["partitions"]] == [0, 1]
    assert shown["partitions"][1]["size_bytes"] > 60
    assert {"name": "retention.ms", "value": "60000", "source": "topic"} in shown["settings"]
    text = run("topic", "describe", topic).stdout
    assert "retention.ms" in text
    assert "PARTITION" in text
    assert "There is no topic no-such." in run("topic", "describe", "no-such", code=1).stderr


def test_a_topic_is_altered(topic: str) -> None:
    run("topic", "alter", topic, "--partitions", "4", "--config", "retention.ms=60000")
    run("topic", "alter", topic, "--delete-config", "retention.ms", "--json")
    (shown,) = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert len(shown["partitions"]) == 4
    assert "retention.ms" not in [item["name"] for item in shown["settings"]]
    assert "INVALID_PARTITIONS" in run("topic", "alter", topic, "--partitions", "1", code=1).stderr


def test_topics_are_deleted(topic: str) -> None:
    run("topic", "delete", topic, stdin="n\n", code=1)
    assert f"Deleted topic {topic}" in run("topic", "delete", topic, "--yes").stdout
    assert f"There is no topic {topic}." in run("topic", "delete", topic, "--yes", code=1).stderr


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(topic: str, codec: str) -> None:
    lines = "".join(f"{number}\n" for number in range(500))
    sent = run("produce", topic, "--codec", codec, stdin=lines)
    assert f"Sent 500 messages to {topic}" in sent.stderr
    assert sent.stdout == ""
    assert sorted(run("consume", topic).stdout.split(), key=int) == lines.split()


def test_keys_headers_and_times(topic: str) -> None:
    arguments = ["--key-separator", ":", "--header", "h=1", "--header", "h=2", "--timestamp", "1700000000000"]
    sent = json.loads(run("produce", topic, *arguments, "--json", stdin=b"a:x\nb:\xff\x1b\n").stdout)
    assert (sent["delivered"], sent["failed"]) == (2, 0)
    found = {item["key"]: item for item in json_lines(run("consume", topic, "--json"))}
    assert found["a"]["value"] == "x"
    assert found["b"]["value_base64"] == "/xs="
    assert found["a"]["timestamp"] == 1_700_000_000_000
    assert found["a"]["headers"] == [{"key": "h", "value": "1"}, {"key": "h", "value": "2"}]
    text = run("consume", topic, "--format", "full").stdout
    assert "2023-11-14T22:13:20.000Z key=b header.h=1 header.h=2 value=\\xff\\x1b" in text
    assert "has no ':'" in run("produce", topic, *arguments, stdin="nokey\n", code=1).stderr


def test_what_was_printed_as_json_can_be_sent_again(topic: str, new_topic: Callable[[], str]) -> None:
    run("produce", topic, "-K", ":", "-H", "h=1", stdin=b"a:x\nb:\xff\n")
    printed = run("consume", topic, "--json").stdout
    copy = new_topic()
    run("produce", copy, "--json-input", stdin=printed)
    fields = ("key", "value", "value_base64", "headers", "timestamp")
    again = json_lines(run("consume", copy, "--json"))
    wanted = [json.loads(line) for line in printed.splitlines()]
    key = lambda item: item["key"]  # noqa: E731
    assert [[item.get(name) for name in fields] for item in sorted(again, key=key)] == [
        [item.get(name) for name in fields] for item in sorted(wanted, key=key)
    ]
    assert "Line 1 is no message" in run("produce", copy, "--json-input", stdin="{\n", code=1).stderr


def test_places_to_begin(topic: str) -> None:
    for number in range(5):
        run("produce", topic, "-p", "0", "-m", str(number), "--timestamp", str(1000 + number))
    read = lambda *arguments: run("consume", topic, "-p", "0", *arguments).stdout.split()  # noqa: E731
    assert read("--offset", "3") == ["3", "4"]
    assert read("--offset", "-2") == ["3", "4"]
    assert read("--offset", "-99") == ["0", "1", "2", "3", "4"]
    assert read("--offset", "latest") == []
    assert read("--from-time", "1002") == ["2", "3", "4"]
    assert read("--from-time", "1970-01-01T00:00:01.004Z") == ["4"]
    assert read("--from-time", "-1h") == []
    assert read("--max-messages", "2") == ["0", "1"]
    assert read("--isolation-level", "read_committed", "-o", "4") == ["4"]
    assert "has offsets 0 to 5, not 9" in run("consume", topic, "-p", "0", "-o", "9", code=1).stderr
    assert "has no partition 7" in run("consume", topic, "-p", "7", code=1).stderr
    assert "There is no topic no-such." in run("consume", "no-such", code=1).stderr


def test_following_goes_on_after_the_end(topic: str) -> None:
    run("produce", topic, "-m", "before")
    command = [sys.executable, "-m", "barnabas", "consume", topic, "--follow", "--max-messages", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
        run("produce", topic, "-m", "after")
        assert process.stdout.readline() == "after\n"
        assert process.wait(60) == 0


def test_a_reader_that_goes_away_ends_it_quietly(topic: str) -> None:
    run("produce", topic, stdin="x" * 50 + "\n" + ("y" * 50 + "\n") * 5000)
    command = f"{sys.executable} -m barnabas consume {topic} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


@pytest.mark.parametrize("test", ["produce", "consume", "latency"])
def test_a_bench_measures_and_cleans_up(test: str) -> None:
    before = run("topic", "list", "--json").stdout
    found = json.loads(run("bench", test, "--messages", "200", "--json").stdout)
    assert found["messages"] == 200
    assert found["messages_per_second"] > 0
    if test != "consume":
        assert {"p50", "p99", "p99.9", "max"} == set(found["acknowledged"])
    assert run("topic", "list", "--json").stdout == before


def test_a_bench_keeps_what_it_is_told_to(topic: str, new_topic: Callable[[], str]) -> None:
    kept = new_topic()
    run("bench", "produce", "-n", "10", "--topic", kept, "--keep")
    assert "messages per second" in run("bench", "consume", "--topic", kept, "-n", "5").stdout
    run("bench", "produce", "-n", "10", "--topic", topic)
    names = [item["name"] for item in json.loads(run("topic", "list", "--json").stdout)]
    assert {kept, topic} <= set(names)
