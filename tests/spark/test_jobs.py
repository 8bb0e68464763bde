"""The jobs, as functions: each on small topics of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.client.wire.decoding import decode
from barnabas.model.ids import TopicPartition
from barnabas.spark.jobs import compare, deadletters, hotkeys, rows
from barnabas.spark.jobs.archive import Archive, JobFailed, archive
from barnabas.spark.jobs.replay import Replay
from barnabas.spark.options import parse_sink
from barnabas.spark.tables.formats import open_table, table_options
from barnabas.spark.verify import verify
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import write
from tests.spark.transactional import DriverDied, sees, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewName = Callable[[], str]


def contents(client: Client, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for number in sorted(client.topic(topic).partitions):
        for fetched in fetch(client, {TopicPartition(topic, number): 0}):
            found[number] = [(record.key, record.value) for record in decode(fetched, 0).records]
    return found


def orders(count: int, keys: int = 7) -> list[tuple[bytes | None, bytes | None]]:
    return [(f"k{n % keys}".encode(), json.dumps({"id": str(n), "amount": n / 2}).encode()) for n in range(count)]


def now_ms() -> int:
    """Old records would be taken by retention in the middle of a test."""
    return int(time.time() * 1000)


@pytest.fixture
def servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    for partition in range(2):
        write(client, topic, orders(500), partition=partition, timestamp=now_ms())
    return topic


@pytest.fixture
def other(client: Client, new_topic: NewName) -> str:
    name = new_topic()
    create_topic(client, name, partitions=2)
    return name


@pytest.fixture
def archived(spark: SparkSession, servers: str, filled: str, tmp_path: Path) -> dict[str, str]:
    """The options of a table that has the topic."""
    options = table_options(f"delta:{tmp_path / 'table'}")
    job = Archive(
        topics=(filled,), servers=servers, table=options, checkpoint=str(tmp_path / "checkpoint"), max_per_batch=600
    )
    batches: list[int] = []
    done = archive(spark, job, lambda batch: batches.append(batch.rows))
    assert (done.rows, sum(batches), len(batches), done.lag) == (1000, 1000, done.batches, 0)
    assert done.batches > 1
    assert archive(spark, job).rows == 0
    return options


def test_an_archive_is_complete_and_is_told_of(client: Client, filled: str, archived: dict[str, str]) -> None:
    with open_table(archived) as table:
        report = verify(table, client, filled, whole_topic=True)
    assert report.ok, report.problems
    assert sum(partition.rows for partition in report.partitions) == 1000


def test_an_archive_says_what_went_wrong(spark: SparkSession, servers: str, filled: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    job = Archive(
        topics=(filled,),
        servers=servers,
        table=table_options(f"delta:{tmp_path / 'file' / 'table'}"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    with pytest.raises(JobFailed, match="file"):
        archive(spark, job)


def test_a_table_is_replayed_in_order(
    client: Client, servers: str, filled: str, other: str, archived: dict[str, str]
) -> None:
    sink = parse_sink({"kafka.bootstrap.servers": servers, "topic": other})
    with open_table(archived) as table:
        bounds = rows.bounds_of_table(table, filled)
        with Replay(sink, other, other) as replay:
            done = replay.run(rows.of_table(table, bounds, rows.Period()), keep_partition=True)
    assert (done.rows, done.finished) == (1000, True)
    assert done.next_offsets == {TopicPartition(filled, 0): 500, TopicPartition(filled, 1): 500}
    assert contents(client, other) == contents(client, filled)


def test_a_topic_is_replayed_by_key_and_at_a_pace(client: Client, servers: str, filled: str, other: str) -> None:
    sink = parse_sink({"kafka.bootstrap.servers": servers, "topic": other})
    bounds = rows.bounds_of_topic(client, filled, rows.Period())
    with Replay(sink, other, other) as replay:
        done = replay.run(rows.of_topic(client, bounds, rows.Period()), per_second=2000)
    assert done.rows == 1000
    assert done.seconds > 0.4, "a limit is a limit"
    found = contents(client, other)
    for key in {key for part in found.values() for key, _ in part}:
        holding = [part for part in found.values() if any(k == key for k, _ in part)]
        assert len(holding) == 1, "a key is in one partition"
    for key, values in in_order(contents(client, filled)[0]).items():
        again = in_order([pair for part in found.values() for pair in part])[key]
        # Both partitions had the same records: each value comes twice, and each of the two stays in its order.
        assert list(dict.fromkeys(again)) == values
        assert list(dict.fromkeys(reversed(again))) == values[::-1]
        assert len(again) == 2 * len(values)


def in_order(pairs: list[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def test_partitions_of_a_topic_are_read_side_by_side(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a reply has no room for more than one of them."""
    for _ in range(3):
        for partition in range(2):
            write(client, topic, orders(100), partition=partition, timestamp=now_ms())
    monkeypatch.setattr(rows, "FETCH", FetchLimits(max_bytes=1, partition_max_bytes=1))  # a batch at a time
    bounds = rows.bounds_of_topic(client, topic, rows.Period())
    read = [(piece.partition.partition, piece.next_offset) for piece in rows.of_topic(client, bounds, rows.Period())]
    assert read == [(0, 100), (1, 100), (0, 200), (1, 200), (0, 300), (1, 300)]


def test_a_replay_of_a_period(client: Client, servers: str, topic: str, other: str) -> None:
    start = now_ms() - 100_000
    write(client, topic, orders(100), timestamp=start)
    period = rows.Period(start + 20, start + 50)
    pieces = rows.of_topic(client, rows.bounds_of_topic(client, topic, period), period)
    with Replay(parse_sink({"kafka.bootstrap.servers": servers, "topic": other}), other, other) as replay:
        done = replay.run(pieces)
    assert done.rows == 30


def replay_command(servers: str, source: str, to: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "barnabas", "pipeline", "replay", source, "--to", to, "-b", servers, *more]
    return subprocess.Popen(command)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_replay_that_is_stopped_goes_on_and_writes_nothing_twice(
    client: Client, servers: str, filled: str, other: str, number: signal.Signals
) -> None:
    with replay_command(servers, filled, other, "--rate", "200") as first:
        deadline_s = time.monotonic() + 60
        while not visible(client, other):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        first.send_signal(number)
        assert first.wait(30) == (130 if number is signal.SIGINT else -number)
    assert len(visible(client, other)) < 1000
    with replay_command(servers, filled, other) as second:
        assert second.wait(60) == 0
    assert sees(client, other, visible(client, filled))
    with replay_command(servers, filled, other) as third:
        assert third.wait(60) == 0
    assert sees(client, other, visible(client, filled) * 2), "one that had finished begins anew"


def test_a_topic_and_its_table_are_the_same_until_they_are_not(
    spark: SparkSession, client: Client, servers: str, filled: str, archived: dict[str, str]
) -> None:
    source = {"kafka.bootstrap.servers": servers, "subscribe": filled}
    same = compare.compare(compare.topic(spark, source), compare.table(spark, archived, filled), "offset")
    assert (same.same, same.left, same.right) == (True, 1000, 1000)
    write(client, filled, [(b"new", b"one")], timestamp=now_ms())
    found = compare.compare(compare.topic(spark, source), compare.table(spark, archived, filled), "offset")
    assert (found.missing, found.extra, found.different) == (1, 0, 0)
    assert found.samples == [compare.Sample("missing", "partition 0, offset 500", b"one", None)]


def test_two_topics_by_content_and_by_key(
    spark: SparkSession, client: Client, servers: str, topic: str, other: str
) -> None:
    write(client, topic, [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (None, b"x")], timestamp=now_ms())
    write(client, other, [(b"a", b"2"), (b"a", b"1"), (b"c", b"9"), (None, b"x")], partition=1, timestamp=now_ms())
    left, right = (compare.topic(spark, {"kafka.bootstrap.servers": servers, "subscribe": t}) for t in (topic, other))
    content = compare.compare(left, right, "content")
    assert (content.left, content.right, content.missing, content.extra) == (4, 4, 1, 1)
    key = compare.compare(left, right, "key")
    assert (key.missing, key.extra, key.different) == (1, 1, 1)
    assert {sample.where for sample in key.samples} == {"key 'a'", "key 'b'", "key 'c'"}


def test_hot_keys_and_skew(spark: SparkSession, client: Client, servers: str, topic: str) -> None:
    write(client, topic, [(b"hot", b"x" * 10)] * 90 + [(None, b"y")] * 10, timestamp=now_ms())
    write(client, topic, [(b"hot", b"x")] * 10 + [(b"cold", None)] * 10, partition=1, timestamp=now_ms())
    found = hotkeys.hotkeys(spark, {"kafka.bootstrap.servers": servers, "subscribe": topic}, top=2)
    assert (found.messages, found.keys) == (120, 3)
    assert found.hottest[0] == hotkeys.HotKey(b"hot", 100, 90 * 13 + 10 * 4, 100 / 120, 2)
    assert found.skew == pytest.approx(100 * 2 / 120)


def test_dead_letters_are_taken_up_once(
    spark: SparkSession, client: Client, servers: str, topic: str, other: str
) -> None:
    origin = [("deadletter.topic", other.encode()), ("deadletter.reason", b"was bad"), ("mine", b"1")]
    letters = [(b"k", b'{"id": "1", "amount": 2}'), (b"k", b"junk")]
    write(client, topic, letters, headers=origin, timestamp=now_ms())
    job = deadletters.Redrive(
        servers, topic, None, deadletters.Validation("json", "id STRING, amount DOUBLE"), f"{topic}-group"
    )
    tried = deadletters.redrive(spark, client, job._replace(dry_run=True))
    assert (tried.read, tried.good, tried.bad) == (2, 1, 1)
    assert not any(contents(client, other).values())
    done = deadletters.redrive(spark, client, job)
    assert (done.read, done.good, done.bad) == (2, 1, 1)
    sent = [r for part in fetch(client, {TopicPartition(other, n): 0 for n in (0, 1)}) for r in decode(part, 0).records]
    assert [(record.value, record.headers) for record in sent] == [(letters[0][1], (("mine", b"1"),))]
    again = deadletters.redrive(spark, client, job)
    assert (again.read, again.good, again.bad) == (1, 0, 1), "the bad one is kept, with one attempt more"
    last = [r for part in fetch(client, {TopicPartition(topic, n): 0 for n in (0, 1)}) for r in decode(part, 0).records]
    attempts = sorted(value for record in last for name, value in record.headers if name == "barnabas.attempts")
    assert attempts == [b"2", b"3"]


def test_dead_letters_of_a_run_that_died_are_not_sent_twice(
    spark: SparkSession, client: Client, servers: str, topic: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written its letters, and not committed its offsets."""
    write(client, topic, [(b"k", b'{"id": "1"}'), (b"k", b"junk")], timestamp=now_ms())
    validation = deadletters.Validation("json", "id STRING")
    job = deadletters.Redrive(servers, topic, other, validation, f"{topic}-group")

    def die(*_: object) -> None:
        raise DriverDied

    with monkeypatch.context() as patched:
        patched.setattr(deadletters, "commit_offsets", die)
        with pytest.raises(DriverDied):
            deadletters.redrive(spark, client, job)
    again = deadletters.redrive(spark, client, job)
    assert (again.read, again.good, again.bad) == (1, 0, 1), "the junk, put at the end"
    assert sees(client, other, ['{"id": "1"}'])


def test_an_interrupted_archive_ends_cleanly_and_keeps_what_is_committed(
    servers: str, filled: str, client: Client, tmp_path: Path
) -> None:
    """Ctrl-C goes to all processes of the terminal: those of Spark, too."""
    table = f"delta:{tmp_path / 'table'}"
    command = [sys.executable, "-m", "barnabas", "pipeline", "archive", filled, "--to", table, "--follow"]
    with subprocess.Popen(
        [*command, "--every", "0.1", "--bootstrap-server", servers, "--max-per-batch", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if ", 0 behind" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        said += list(process.stdout)
        assert process.wait(60) == 0, said
    assert not [line for line in said if "Traceback" in line or "Error" in line or "Exception" in line]
    assert said[-1].endswith(" s.\n")
    with open_table(table_options(table)) as found:
        report = verify(found, client, filled)
        assert report.ok, report.problems
        assert sum(item.rows for item in report.partitions) == 1000
