"""Commands about transactions, and transactions of produce and consume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from barnabas.client.wire import Client
from barnabas.client.wire.transactions import find_transaction
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.wire.records import Record, encode_batch
from tests.unit.cli.command_line import json_lines, run

MAX_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Takes records of transactions that the coordinator does not know, as brokers before KIP-890 did."""
    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
        "transaction.max.timeout.ms": MAX_TIMEOUT_S * 1000,
    }
    with EmbeddedBroker(settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def bootstrap(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", servers)


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    name = new_topic()
    run("topic", "create", name, "--partitions", "2")
    return name


@pytest.fixture
def begin(servers: str, topic: str) -> Callable[..., Producer]:
    """Opens a transaction with a record in each partition."""

    def opened(name: str, **settings: Any) -> Producer:
        producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0, **settings})
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"open", partition=partition)
        assert producer.flush(30) == 0
        return producer

    return opened


def described(name: str) -> dict[str, Any]:
    (shown,) = json.loads(run("transaction", "describe", name, "--json").stdout)
    assert isinstance(shown, dict)
    return shown


def listed(*arguments: str) -> dict[str, str]:
    found = json.loads(run("transaction", "list", *arguments, "--json").stdout)
    return {each["transactional_id"]: each["state"] for each in found}


def wait_for_state(name: str, state: str) -> None:
    deadline_s = time.monotonic() + 30
    while described(name)["state"] != state:
        assert time.monotonic() < deadline_s, described(name)
        time.sleep(0.05)


def committed(topic: str) -> list[str]:
    return run("consume", topic, "--isolation-level", "read_committed").stdout.split()


def hang(servers: str, topic: str, producer_id: int, *, age_s: float) -> None:
    """Three records of a transaction that no coordinator knows, in partition 0."""
    timestamp = int((time.time() - age_s) * 1000)
    records = [Record(value=b"hanging", timestamp=timestamp)] * 3
    data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, data)])]
    with Client(servers) as client:
        request = ProduceRequest(transactional_id="forgotten", acks=-1, timeout_ms=10_000, topic_data=topics)
        reply = client.any_node().request(request, ProduceResponse, version=11)
    assert reply.responses[0].partition_responses[0].error_code == 0


def test_help_has_examples() -> None:
    for command in ("list", "describe", "abort", "find-hanging"):
        assert "Examples:" in run("transaction", command, "--help").stdout
    assert "Examples:" in run("bench", "transactions", "--help").stdout
    for command in ("produce", "consume"):
        assert "--transactional-id" in run(command, "--help").stdout


def test_states_from_beginning_to_end(topic: str, begin: Callable[..., Producer]) -> None:
    producer = begin(topic)
    shown = described(topic)
    assert shown["state"] == "Ongoing"
    assert shown["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert 0 <= shown["open_seconds"] < 60
    text = run("transaction", "describe", topic).stdout
    assert f"Transactional id {topic}  state Ongoing" in text
    assert "Open for" in text
    producer.commit_transaction(30)
    wait_for_state(topic, "CompleteCommit")
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(30)
    producer.abort_transaction(30)
    wait_for_state(topic, "CompleteAbort")
    assert described(topic)["open_seconds"] is None
    assert "No transaction is open." in run("transaction", "describe", topic).stdout


def test_transactions_are_listed_by_state_age_producer_and_pattern(topic: str, begin: Callable[..., Producer]) -> None:
    begin(f"{topic}-1")
    begin(f"{topic}-2").commit_transaction(30)
    wait_for_state(f"{topic}-2", "CompleteCommit")
    both = {f"{topic}-1": "Ongoing", f"{topic}-2": "CompleteCommit"}
    assert listed().items() >= both.items()
    assert listed("--pattern", f"{topic}-.*") == both
    assert listed("--pattern", topic) == {}
    assert listed("--pattern", f"{topic}-.*", "--state", "ongoing") == {f"{topic}-1": "Ongoing"}
    assert listed("--pattern", f"{topic}-.*", "--min-duration", "1h") == {}
    number = described(f"{topic}-2")["producer_id"]
    assert listed("--producer-id", str(number)) == {f"{topic}-2": "CompleteCommit"}
    assert f"{topic}-1" in run("transaction", "list").stdout
    assert "No transactional id matches." in run("transaction", "list", "--pattern", "nothing").stderr
    assert "--pattern is '(': " in run("transaction", "list", "--pattern", "(", code=1).stderr
    assert "'5x' is no duration" in run("transaction", "list", "--min-duration", "5x", code=2).stderr
    run("transaction", "abort", f"{topic}-1", "--yes")


def test_a_transaction_that_times_out(topic: str, begin: Callable[..., Producer]) -> None:
    begin(topic, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    wait_for_state(topic, "CompleteAbort")
    assert committed(topic) == []
    assert run("consume", topic).stdout.split() == ["open", "open"]


def test_producers_of_a_partition(topic: str, begin: Callable[..., Producer]) -> None:
    producer = begin(topic)
    (shown,) = json.loads(run("transaction", "describe", "--partition", f"{topic}:1", "--json").stdout)
    (row,) = shown["producers"]
    assert (row["transactional_id"], row["transaction_start_offset"], row["last_sequence"]) == (topic, 0, 0)
    producer.commit_transaction(30)
    text = run("transaction", "describe", "-p", f"{topic}:0", "-p", f"{topic}:1").stdout
    assert f"Partition {topic}-0  1 producer\n" in text
    assert f"Partition {topic}-1  1 producer\n" in text


def test_abort_fences_the_producer(topic: str, begin: Callable[..., Producer]) -> None:
    producer = begin(topic)
    run("transaction", "abort", topic, stdin="n\n", code=1)
    assert described(topic)["state"] == "Ongoing"
    assert (
        f"Aborted the transaction of {topic} in {topic}-0, {topic}-1."
        in run("transaction", "abort", topic, "--yes").stdout
    )
    with pytest.raises(KafkaException, match=r"fenced|epoch"):
        producer.commit_transaction(30)
    again = run("transaction", "abort", topic, "--yes", code=1)
    assert f"Transactional id {topic} has nothing to abort: its state is Empty." in again.stderr


def test_what_is_not_there(topic: str, begin: Callable[..., Producer]) -> None:
    begin(topic).commit_transaction(30)
    assert f"Did you mean {topic}" in run("transaction", "describe", f"{topic}x", code=1).stderr
    assert f"There is no transactional id {topic}x" in run("transaction", "abort", f"{topic}x", "-y", code=1).stderr
    assert "Give transactional ids, or --partition." in run("transaction", "describe", code=2).stderr
    assert "no partition 7, only 0 to 1" in run("transaction", "describe", "-p", f"{topic}:7", code=1).stderr
    assert "'orders' is not TOPIC:N" in run("transaction", "describe", "-p", "orders", code=2).stderr
    assert "There is no broker 99." in run("transaction", "find-hanging", "--broker", "99", code=1).stderr
    place = ["--topic", topic, "--partition", "0"]
    assert "--start-offset" in run("transaction", "abort", *place, code=2).stderr
    nothing = run("transaction", "abort", *place, "--start-offset", "5", code=1).stderr
    assert f"No transaction in {topic}-0 begins at offset 5; none is open." in nothing


def test_a_hanging_transaction_is_found_and_aborted(topic: str, servers: str) -> None:
    run("produce", topic, "-p", "0", "-m", "before")
    hang(servers, topic, 4711, age_s=1200)
    for text in ("behind", "it"):
        run("produce", topic, "-p", "0", "-m", text)
    assert committed(topic) == ["before"]
    found = json.loads(run("transaction", "find-hanging", "-t", topic, "--groups", "--json", code=1).stdout)
    (row,) = found["hanging"]
    assert (row["topic"], row["partition"], row["producer_id"], row["start_offset"]) == (topic, 0, 4711, 1)
    assert (row["last_stable_offset"], row["high_watermark"], row["held_back"]) == (1, 6, 5)
    assert 1200 <= row["age_seconds"] < 1300
    text = run("transaction", "find-hanging", "-t", topic, code=1).stdout
    assert f"{topic}-0" in text
    assert "20m" in text
    assert "5 records from 1" in text
    place = ["--topic", topic, "--partition", "0", "--start-offset", "1"]
    assert f"transaction abort {' '.join(place)}" in text
    aborted = json.loads(run("transaction", "abort", *place, "--yes", "--json").stdout)
    assert (aborted["start_offset"], aborted["producer_id"], aborted["aborted"]) == (1, 4711, True)
    assert committed(topic) == ["before", "behind", "it"]
    assert "2 partitions: 0 hanging transactions" in run("transaction", "find-hanging", "-t", topic).stdout


def test_a_young_or_known_transaction_does_not_hang(topic: str, servers: str, begin: Callable[..., Producer]) -> None:
    begin(topic)
    hang(servers, topic, 4712, age_s=60)
    assert json.loads(run("transaction", "find-hanging", "-t", topic, "--json").stdout)["hanging"] == []
    young = ["transaction", "find-hanging", "-t", topic, "--max-transaction-timeout", "0.5", "--json"]
    assert [row["producer_id"] for row in json.loads(run(*young, code=1).stdout)["hanging"]] == [4712]
    place = ["--topic", topic, "--partition", "0", "--start-offset", "0", "--yes"]
    refused = run("transaction", "abort", *place, code=1).stderr
    assert f"its coordinator knows it as that of {topic}. Abort all of it with: " in refused
    run("transaction", "abort", topic, "--yes")
    run("transaction", "abort", "--topic", topic, "--partition", "0", "--start-offset", "1", "--yes")


def test_lines_go_in_in_one_transaction_or_not_at_all(topic: str) -> None:
    sent = run("produce", topic, "--transactional-id", topic, stdin="a\nb\nc\n")
    assert f"Sent 3 messages to {topic}" in sent.stderr
    assert ", in 1 transaction" in sent.stderr
    failed = run("produce", topic, "--transactional-id", topic, "--json-input", stdin='{"value": "d"}\n{\n', code=1)
    assert "Line 2 is no message" in failed.stderr
    assert "The open transaction was aborted, with 1 message. Nothing was committed." in failed.stderr
    assert sorted(committed(topic)) == ["a", "b", "c"]


def test_transactions_of_so_many_messages(topic: str) -> None:
    options = ["--transactional-id", topic, "--transaction-messages", "2", "--json"]
    sent = json.loads(run("produce", topic, *options, stdin="a\nb\nc\nd\ne\n").stdout)
    assert (sent["delivered"], sent["transactions"], sent["committed"], sent["aborted"]) == (5, 3, 5, 0)
    lines = '{"value": "f"}\n{"value": "g"}\n{"value": "h"}\n{\n'
    failed = run("produce", topic, *options, "--json-input", stdin=lines, code=1)
    assert "2 messages in 1 transaction had been committed before." in failed.stderr


def test_options_of_produce_name_what_is_wrong(topic: str) -> None:
    wrong = {
        ("--transactional-id", "x", "--acks", "1"): "--acks is 1: --transactional-id needs all.",
        ("--transaction-timeout", "5"): "--transaction-timeout goes with --transactional-id.",
    }
    for options, text in wrong.items():
        assert text in run("produce", topic, *options, stdin="", code=2).stderr
    options = ("--transactional-id", topic, "--transaction-timeout", "5000")
    too_long = run("produce", topic, *options, stdin="a\n", code=1).stderr
    assert "--transaction-timeout is 5000 s, above the broker's transaction.max.timeout.ms" in too_long


def test_consume_and_commit_in_transactions(topic: str, servers: str) -> None:
    run("produce", topic, "--transactional-id", f"{topic}-in", stdin="a\nb\nc\nd\n")
    options = ["--group", topic, "--transactional-id", topic, "--isolation-level", "read_committed", "--json"]
    first = json_lines(run("consume", topic, *options, "-n", "3"))
    second = json_lines(run("consume", topic, *options))
    assert sorted(each["value"] for each in first + second) == ["a", "b", "c", "d"]
    assert run("consume", topic, *options).stdout == ""
    with Client(servers) as client:
        info = find_transaction(client, topic)
    assert info is not None
    assert info.producer.transactional_id == topic
    assert "--transactional-id goes with --group." in run("consume", topic, "--transactional-id", "x", code=2).stderr
    assert "'committed' is not one of" in run("consume", topic, "--isolation-level", "committed", code=2).stderr


def test_transactions_are_measured() -> None:
    options = ["-n", "5", "-m", "10", "-p", "2", "--open-ids", "3", "--idle", "0", "--json"]
    result = json.loads(run("bench", "transactions", *options).stdout)
    assert (result["transactions"], result["messages"], result["open_ids"]) == (5, 50, 3)
    assert result["commit"]["p50"] > 0
    assert "commit p99" in run("bench", "transactions", "-n", "2", "-m", "1").stdout
