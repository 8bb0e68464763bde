"""``barnabas serve``: output, exit codes, settings, and data that survives a restart."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import barnabas
from barnabas.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.reliability.process import PATIENCE_S, BrokerProcess
from tests.reliability.raw import Raw, batch, fetch_request, frame, produce_request, wait_until


def run(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """``barnabas serve`` that is expected to end by itself: (exit code, everything it said)."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout


def refused(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """The one sentence with which it refuses to start."""
    code, output = run(*arguments, environment=environment)
    assert code == 2, output
    lines = output.strip().splitlines()
    assert len(lines) == 1, output
    assert lines[0].startswith("barnabas: "), output
    assert lines[0].endswith((".", "?")), output
    return lines[0]


def data(folder: Path) -> list[str]:
    return ["--listen", "127.0.0.1:0", "--data", str(folder / "data")]


# Refusing to start


def test_a_data_folder_in_use(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert "is in use" in refused(*data(tmp_path))
        with Raw(broker.port) as client:
            assert client.versions().error_code == 0


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = refused("--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data"))
        assert f"Cannot listen on 127.0.0.1:{port}: address already in use" in told
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_a_port_that_another_process_is_about_to_listen_on(tmp_path: Path) -> None:
    """Bound by both, listened on by the other first: the failure comes from listen, not from bind."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with BrokerProcess(tmp_path / "data") as broker:
            broker.stop()
            broker.port = port
            broker.start()
            with Raw(port) as client:
                assert client.versions().error_code == 0


@pytest.mark.parametrize(
    ("setting", "telling"),
    [
        ("num.partitions=many", "num.partitions"),
        ("num.partitions=0", "num.partitions"),
        ("log.retention.ms=soon", "log.retention.ms"),
        ("log.cleanup.policy=burn", "log.cleanup.policy"),
        ("num.partitons=3", "Did you mean num.partitions?"),
        ("barnabas.durabel=true", "Did you mean barnabas.durable?"),
        ("utterly.unknown=1", "neither Kafka nor Barnabas"),
        ("listeners=SSL://127.0.0.1:0", "PLAINTEXT only"),
        ("listeners=SASL_PLAINTEXT://127.0.0.1:0", "PLAINTEXT only"),
        ("listeners=PLAINTEXT://0.0.0.0:0", "advertised.listeners"),
        ("listeners=PLAINTEXT://:0", "advertised.listeners"),
        ("listeners=PLAINTEXT://[::]:0", "advertised.listeners"),
        ("listeners=nonsense", "NAME://HOST:PORT"),
        ("listeners=PLAINTEXT://127.0.0.1:99999", "ports are 0 to 65535"),
        ("listeners=PLAINTEXT://no.such.host.invalid:0", "Cannot listen on"),
        ("listeners=A://127.0.0.1:0,A://127.0.0.1:0", "name of its own"),
        ("advertised.listeners=OTHER://example.org:9092", "not among listeners"),
        ("max.connections.per.ip.overrides=127.0.0.1", "max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides=127.0.0.1:few", "max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides=127.0.0.1:-1", "max.connections.per.ip.overrides"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, setting: str, telling: str) -> None:
    listen = [] if setting.startswith("listeners=") else ["--listen", "127.0.0.1:0"]
    told = refused("--data", str(tmp_path / "data"), *listen, "--set", setting)
    assert telling in told
    assert not (tmp_path / "data").exists() or not any((tmp_path / "data").iterdir())


def test_a_settings_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in refused(*data(tmp_path), "--config", str(tmp_path / "none.properties"))
    assert "is a directory" in refused(*data(tmp_path), "--config", str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "Cannot read the settings file" in refused(*data(tmp_path), "--config", str(tmp_path / "binary"))


def test_a_folder_of_another_node_or_cluster(tmp_path: Path) -> None:
    BrokerProcess(tmp_path / "data").start().stop()
    assert "belongs to node 1" in refused(*data(tmp_path), "--set", "node.id=2")
    properties = tmp_path / "data" / "meta.properties"
    properties.write_text(properties.read_text().replace("version=1", "version=9"))
    assert "version 9" in refused(*data(tmp_path))
    properties.write_text("what is this")
    refused(*data(tmp_path))


def test_a_data_folder_that_is_a_file_or_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    refused(*data(tmp_path))
    refused("--listen", "127.0.0.1:0", "--data", "/proc/no/such")


def test_damaged_metadata_is_told_in_a_sentence(tmp_path: Path) -> None:
    BrokerProcess(tmp_path / "data").start().stop()
    (snapshot,) = (tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint")
    snapshot.write_bytes(snapshot.read_bytes()[:-20] + b"x" * 20)
    assert snapshot.name in refused(*data(tmp_path))


@pytest.mark.parametrize("damage", [b"rubbish" * 20, b"short"], ids=["long", "short"])
def test_a_snapshot_of_the_metadata_with_rubbish_is_told_in_a_sentence(tmp_path: Path, damage: bytes) -> None:
    BrokerProcess(tmp_path / "data").start().stop()
    (snapshot,) = (tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint")
    whole = snapshot.read_bytes()
    for content in (whole + damage, damage * (len(whole) // len(damage) + 1)):
        snapshot.write_bytes(content)
        assert f"{snapshot}" in refused(*data(tmp_path))


def test_the_metadata_is_snapshot_after_a_time_too(tmp_path: Path) -> None:
    first = tmp_path / "data" / "__cluster_metadata-0" / f"{0:020d}-{0:010d}.checkpoint"
    with BrokerProcess(tmp_path / "data", "--set", "metadata.log.max.snapshot.interval.ms=1") as broker:
        client = Raw(broker.port)
        client.create("one")
        wait_until(lambda: not first.exists(), "a newer snapshot to take the place of the first")
        client.close()
        broker.stop()
    with BrokerProcess(tmp_path / "data") as broker, Raw(broker.port) as client:
        known = client.call(MetadataRequest(topics=None), MetadataResponse, 9).topics
        assert [topic.name for topic in known] == ["one"]


def test_a_missing_snapshot_of_the_metadata_is_told_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "__cluster_metadata-0"
    with BrokerProcess(tmp_path / "data", "--set", "metadata.log.max.record.bytes.between.snapshots=1") as broker:
        client = Raw(broker.port)
        client.create("one")
        wait_until(lambda: not (folder / f"{0:020d}.log").exists(), "the log before the snapshot to go")
        client.close()
        broker.stop()
    for snapshot in folder.glob("*.checkpoint"):
        snapshot.unlink()
    sentence = refused(*data(tmp_path))
    assert "begins at offset" in sentence
    assert f"{folder}" in sentence


@pytest.mark.parametrize(
    "content", [b"", b"{", b"{}", b"[]", b"\xff\xfe", b'{"leaderEpoch":99999999999}', b'{"leaderEpoch":1e999}', None]
)
def test_a_lost_or_damaged_vote_is_told_and_made_up_for(tmp_path: Path, content: bytes | None) -> None:
    BrokerProcess(tmp_path / "data").start().stop()
    vote = tmp_path / "data" / "__cluster_metadata-0" / "quorum-state"
    if content is None:
        vote.unlink()
    else:
        vote.write_bytes(content)
    broker = BrokerProcess(tmp_path / "data").start()
    broker.stop()
    assert "the vote is lost: the epoch is taken from the metadata log" in broker.output
    assert f"{vote} is {'missing' if content is None else 'damaged'}" in broker.output
    assert '"leaderEpoch":2' in vote.read_text()


@pytest.mark.parametrize(
    ("old", "new", "telling"),
    [
        (b"#", b"\xff", "is not text"),
        (b"node.id=1", b"node.id=one", "is no node.id"),
        (b"node.id=1", "node.id=²".encode(), "is no node.id"),
        (b"node.id=1", b"node.id=99999999999", "is no node.id"),
        (b"directory.id=", b"directory.id=short", "directory.id"),
        (b"cluster.id=", b"cluster=", "cluster.id"),
    ],
)
def test_a_damaged_identity_is_told_in_a_sentence(tmp_path: Path, old: bytes, new: bytes, telling: str) -> None:
    BrokerProcess(tmp_path / "data").start().stop()
    properties = tmp_path / "data" / "meta.properties"
    properties.write_bytes(properties.read_bytes().replace(old, new, 1))
    sentence = refused(*data(tmp_path))
    assert telling in sentence
    assert f"{properties}" in sentence


def test_a_lost_directory_id_is_told_with_what_it_was(tmp_path: Path) -> None:
    BrokerProcess(tmp_path / "data").start().stop()
    properties = tmp_path / "data" / "meta.properties"
    (line,) = re.findall(r"directory\.id=.*", properties.read_text())
    properties.write_text(properties.read_text().replace(line, ""))
    for _ in range(2):
        assert line in refused(*data(tmp_path))
    properties.write_text(re.sub(r"directory\.id=.*", line, properties.read_text()))
    BrokerProcess(tmp_path / "data").start().stop()


# Saying what it does


def test_what_it_says_at_the_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        wait_until(lambda: "first message" in broker.output, "everything is said")
        lines = broker.output.splitlines()
        assert lines[0] == f"listening on 127.0.0.1:{broker.port}"
        assert f"data in      {tmp_path / 'data'}" in lines
        assert any(line.startswith("durability   acknowledged survives a crash of the process") for line in lines)
        assert any("barnabas produce" in line for line in lines)
        assert "WARNING" not in broker.output
    with BrokerProcess(tmp_path / "data", "--durable") as broker:
        wait_until(lambda: "first message" in broker.output, "everything is said")
        assert "every append is synced before it is acknowledged" in broker.output


def test_an_address_that_others_can_reach_is_warned_of(tmp_path: Path) -> None:
    arguments = ("--set", "listeners=PLAINTEXT://0.0.0.0:0", "--set", "advertised.listeners=PLAINTEXT://example.org:0")
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "serve", "--data", str(tmp_path / "data"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(2)]
        port = re.fullmatch(r"listening on 0\.0\.0\.0:(\d+)\n", said[0])
        assert port
        assert said[1].startswith("WARNING: ")
        assert "no authentication" in said[1]
        with Raw(int(port[1])) as client:
            found = client.call(MetadataRequest(topics=[]), MetadataResponse, 9).brokers
            assert [(node.host, node.port) for node in found] == [("example.org", int(port[1]))]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_settings_of_kafka_without_effect_are_named_once(tmp_path: Path) -> None:
    arguments = ("--set", "num.network.threads=8", "--set", "log.cleaner.threads=2")
    with BrokerProcess(tmp_path / "data", *arguments) as broker:
        assert broker.output.count("settings without effect here") == 1
        assert "log.cleaner.threads, num.network.threads" in broker.output


# Where settings come from


def setting_of(client: Raw, key: str) -> str | None:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(4, "1", [key])])
    return client.call(request, DescribeConfigsResponse, 4).results[0].configs[0].value


def test_file_environment_and_command_line_in_growing_weight(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# Kafka's own file\n! another comment\nnum.partitions=2\nlog.retention.hours = 5\nlog.segment.bytes: 2000000\n"
        "log.roll.hours=\\\n   7\nnum.io.threads=8\nfetch.max.bytes=50000\n"
    )
    environment = {"BARNABAS_LOG_SEGMENT_BYTES": "3000000", "BARNABAS_FETCH_MAX_BYTES": "60000"}
    environment["BARNABAS_DURABLE"] = "true"
    broker = BrokerProcess(
        tmp_path / "data", "--config", str(file), "--set", "fetch.max.bytes=70000", environment=environment
    )
    with broker, Raw(broker.port) as client:
        assert setting_of(client, "num.partitions") == "2"
        assert setting_of(client, "log.retention.ms") == str(5 * 3600 * 1000)
        assert setting_of(client, "log.roll.ms") == str(7 * 3600 * 1000)
        assert setting_of(client, "log.segment.bytes") == "3000000"
        assert setting_of(client, "fetch.max.bytes") == "70000"
        assert setting_of(client, "barnabas.durable") == "true"
        made = client.call(CreateTopicsRequest(topics=[CreatableTopic("t", -1, -1)]), CreateTopicsResponse, 7).topics[0]
        assert made.num_partitions == 2


def test_an_unknown_name_in_the_environment_is_an_error(tmp_path: Path) -> None:
    assert "Unknown setting" in refused(*data(tmp_path), environment={"BARNABAS_NUM_PARTITONS": "2"})


def test_each_listener_is_told_its_own_address(tmp_path: Path) -> None:
    arguments = (
        "--set",
        "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "--set",
        "advertised.listeners=OUTSIDE://broker.example.org:19092",
        "--set",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "serve", "--data", str(tmp_path / "data"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        ports = [int(process.stdout.readline().rsplit(":", 1)[1]) for _ in range(2)]
        expected = [("127.0.0.1", ports[0]), ("broker.example.org", 19092)]
        for port, address in zip(ports, expected, strict=True):
            with Raw(port) as client:
                nodes = client.call(MetadataRequest(topics=[]), MetadataResponse, 9).brokers
                assert [(node.host, node.port) for node in nodes] == [address]
                described = client.call(DescribeClusterRequest(), DescribeClusterResponse, 1).brokers
                assert [(node.host, node.port) for node in described] == [address]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


# Stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop(tmp_path: Path, number: int) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with Raw(broker.port) as client:
            client.create("t")
            client.produce("t")
            broker.signal(number)
            assert broker.wait() == 0
        assert broker.output.endswith("stopping\nstopped cleanly\n")
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        broker.start()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        with Raw(broker.port) as client:
            assert client.fetch("t").high_watermark == 1


def test_hanging_clients_do_not_delay_the_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        hanging = [Raw(broker.port) for _ in range(20)]
        with Raw(broker.port) as client:
            client.create("t")
            client.produce("t", batch(os.urandom(900_000)))
        for number, client in enumerate(hanging):
            if number % 4 == 1:
                client.send(fetch_request("t", 1, max_wait_ms=2**31 - 1), 12)
            elif number % 4 == 2:
                client.send_bytes(frame(produce_request("t", batch()), 9)[:20])
            elif number % 4 == 3:
                client.send_bytes(b"".join(frame(fetch_request("t", max_bytes=1 << 20), 12, n) for n in range(50)))
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0
        assert "stopped cleanly" in broker.output
        for client in hanging:
            client.close()


def test_a_signal_during_the_start_ends_it(tmp_path: Path) -> None:
    """At any moment of the start: before anything is set up by the signal itself, afterwards cleanly."""
    BrokerProcess(tmp_path / "data").start().stop()
    start = time.monotonic()
    BrokerProcess(tmp_path / "data").start().kill()
    whole = time.monotonic() - start
    for step in range(12):
        broker = BrokerProcess(tmp_path / "data").launch()
        try:
            time.sleep(whole * step / 10)
            broker.signal(signal.SIGTERM)
            assert broker.wait() in (0, -signal.SIGTERM), broker.output
            assert "Traceback" not in broker.output, broker.output
        finally:
            broker.kill()
    with BrokerProcess(tmp_path / "data") as broker, Raw(broker.port) as client:
        assert client.versions().error_code == 0


def test_a_second_signal_during_the_stop_does_no_harm(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.signal(signal.SIGTERM)
        broker.signal(signal.SIGINT)
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0
        assert "Traceback" not in broker.output


# What survives


def leader_epoch(client: Raw, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return client.call(request, MetadataResponse, 9).topics[0].partitions[0].leader_epoch


def test_topics_settings_and_records_survive_and_leader_epochs_go_up(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with Raw(broker.port) as client:
            client.create("kept", 3, retention_ms="1234567")
            request = CreateTopicsRequest(
                topics=[CreatableTopic("other", 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")])]
            )
            assert client.call(request, CreateTopicsResponse, 7).topics[0].error_code == 0
            client.produce("kept", batch(b"first"))
            epochs = [leader_epoch(client, "kept")]
            ids = {t.name: t.topic_id for t in client.call(MetadataRequest(topics=None), MetadataResponse, 12).topics}
        for clean in (True, False, True):
            if clean:
                assert broker.stop() == 0
            else:
                broker.kill()
            broker.start()
            with Raw(broker.port) as client:
                epochs.append(leader_epoch(client, "kept"))
                found = client.call(MetadataRequest(topics=None), MetadataResponse, 12).topics
                assert {topic.name: topic.topic_id for topic in found} == ids
                assert {topic.name: len(topic.partitions) for topic in found} == {"kept": 3, "other": 1}
                described = DescribeConfigsRequest(resources=[DescribeConfigsResource(2, "kept", ["retention.ms"])])
                answer = client.call(described, DescribeConfigsResponse, 4)
                assert answer.results[0].configs[0].value == "1234567"
                assert client.fetch("kept").high_watermark == len(epochs) - 1
                assert client.produce("kept").error_code == 0
        assert epochs == sorted(set(epochs)), epochs


def test_memory_leaves_no_files(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--memory"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(barnabas.__file__).parents[1])},
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        assert said[1] == "data in      memory\n"
        assert "everything is gone when this process ends" in said[2]
        with Raw(int(said[0].rsplit(":", 1)[1])) as client:
            client.create("t", 5)
            assert client.produce("t").error_code == 0
            assert client.fetch("t").high_watermark == 1
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []
