"""``barnabas adopt`` on sound, foreign and damaged folders, which it leaves unchanged."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.client.wire import Client, admin
from barnabas.testing import EmbeddedBroker
from tests.unit.cli.command_line import run

METADATA = "__cluster_metadata-0"
LOG = f"{METADATA}/{0:020d}.log"

Damage = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with topics, a snapshot of the metadata and records behind it, stopped cleanly."""
    folder = tmp_path_factory.mktemp("adopted") / "data"
    settings = {"metadata.log.max.record.bytes.between.snapshots": 2000}
    with EmbeddedBroker(data=folder, settings=settings) as broker, Client(broker.bootstrap_servers) as client:
        for number in range(12):
            admin.create_topic(client, f"topic-{number}", partitions=1, replication_factor=1)
        run("produce", "topic-0", "-m", "one", "-b", broker.bootstrap_servers)
    with EmbeddedBroker(data=folder):
        pass
    (folder / ".lock").unlink()
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy, for one test."""
    return Path(shutil.copytree(template, tmp_path / "data"))


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refused(folder: Path, *options: str) -> str:
    """What is said of a folder that is not taken over, with --dry-run and without. It is left as it was."""
    before = contents(folder)
    run("adopt", str(folder), "--dry-run", code=1)
    shown = json.loads(run("adopt", str(folder), "--dry-run", "--json", code=1).stdout)
    assert shown["adoptable"] is False
    result = run("adopt", str(folder), *options, code=1)
    assert contents(folder) == before
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.output


def newest_snapshot(folder: Path) -> str:
    found = max(path.name for path in (folder / METADATA).glob("*.checkpoint"))
    assert not found.startswith(f"{0:020d}")
    return f"{METADATA}/{found}"


DAMAGES: dict[str, Damage] = {
    "cut in the middle": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "zeros first": lambda content: bytes(64) + content[64:],
    "zeros last": lambda content: content[:-64] + bytes(64),
    "random": lambda content: random.Random(1).randbytes(len(content)),
    "random behind": lambda content: content + random.Random(2).randbytes(300),
    "zeros behind": lambda content: content + bytes(5000),
    "a bit of the first batch": lambda content: content[:30] + bytes([content[30] ^ 4]) + content[31:],
    "a bit of the last batch": lambda content: content[:-5] + bytes([content[-5] ^ 4]) + content[-4:],
}


def test_a_sound_folder_is_taken_over_and_served(folder: Path) -> None:
    before = contents(folder)
    told = run("adopt", str(folder)).stdout
    assert "topic-11" in told
    assert f"Serve it with: barnabas serve --data {folder}" in told
    assert contents(folder) == before
    with EmbeddedBroker(data=folder) as broker:
        assert run("consume", "topic-0", "-b", broker.bootstrap_servers).stdout == "one\n"


def test_a_folder_in_use(folder: Path) -> None:
    with EmbeddedBroker(data=folder):
        assert "is in use" in run("adopt", str(folder), code=1).stderr


def test_a_folder_that_is_not_kafkas_gets_no_empty_report(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    told = refused(tmp_path)
    assert told == (
        f"Error: Cannot take over {tmp_path}: {tmp_path} has no meta.properties: it is not the data folder of a Kafka "
        "broker.\n"
    )


@pytest.mark.parametrize("name", [LOG, "the newest snapshot"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_metadata(folder: Path, name: str, damage: str) -> None:
    path = folder / (newest_snapshot(folder) if name == "the newest snapshot" else name)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert METADATA in refused(folder, "--force")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("node.id=1", "node.id=abc", "'abc' is no node.id"),
        ("node.id=1", "node.id=-5", "'-5' is no node.id"),
        ("node.id=1", "node.id=²", "is no node.id"),
        ("node.id=1", f"node.id={'9' * 5000}", "is no node.id"),
        ("node.id=1", "", "it has no node.id"),
        ("node.id=1", "node.id=2", "its quorum has other voters: 1"),
        ("cluster.id", "cluster.ip", "it has no cluster.id"),
        ("version=1", "version=7", "has version 7"),
        ("directory.id=", "directory.id=x", "directory.id"),
        ("directory.id=", "#", "is not the one that its metadata log names"),
    ],
)
def test_a_wrong_identity(folder: Path, before: str, after: str, told: str) -> None:
    path = folder / "meta.properties"
    path.write_text(path.read_text().replace(before, after), encoding="utf-8")
    assert told in refused(folder, "--force")


@pytest.mark.parametrize("damage", ["empty", "zeros", "random"])
def test_a_damaged_identity(folder: Path, damage: str) -> None:
    path = folder / "meta.properties"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert "meta.properties" in refused(folder, "--force")


@pytest.mark.parametrize("name", ["meta.properties", LOG, ".kafka_cleanshutdown", "topic-0-0/partition.metadata"])
def test_a_folder_in_the_place_of_a_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    assert f"{folder / name} cannot be read: is a directory." in refused(folder, "--force")


def test_the_metadata_log_is_gone(folder: Path) -> None:
    (folder / LOG).unlink()
    assert "ends at offset 0" in refused(folder, "--force")
    shutil.rmtree(folder / METADATA)
    assert "it has no metadata log" in refused(folder, "--force")


def test_a_partition_of_another_topic(folder: Path) -> None:
    """Served, its records would be set aside."""
    shutil.copy(folder / "topic-1-0" / "partition.metadata", folder / "topic-0-0" / "partition.metadata")
    assert "the records of topic-0-0 would not be served" in refused(folder, "--force")


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "topic-0-0/partition.metadata",
        "topic-0-0/producers",
        f"{METADATA}/quorum-state",
    ],
)
@pytest.mark.parametrize("damage", ["cut in the middle", "empty", "zeros", "random"])
def test_what_can_be_made_up_for_is_an_obstacle(folder: Path, name: str, damage: str) -> None:
    if name == "topic-0-0/producers":
        name = f"topic-0-0/{next((folder / 'topic-0-0').glob('*.snapshot')).name}"
    path = folder / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    told = refused(folder)
    assert f"obstacle: {path} is damaged" in told
    assert "With --force it is." in told
    run("adopt", str(folder), "--force")
    with EmbeddedBroker(data=folder) as broker:
        assert run("consume", "topic-0", "-b", broker.bootstrap_servers).stdout == "one\n"
