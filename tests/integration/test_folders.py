"""Unexpected data folders: nothing in them is lost, and a start that would lose data is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.model.errors import StartError
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import Raw, batch

METADATA = "__cluster_metadata-0"


def folder_with_topics(path: Path, *, clean: bool = True) -> Path:
    broker = EmbeddedBroker(data=str(path)).start()
    with Raw(broker.port) as raw:
        for name in ("one", "two"):
            raw.create(name)
            raw.produce(name, batch(b"precious"))
    broker.stop() if clean else broker.kill()
    return path


def metadata_log(path: Path) -> Path:
    return path / METADATA / f"{0:020d}.log"


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("damage", "telling"),
    [
        (lambda path: flip(metadata_log(path), 0.3), "is damaged at byte"),
        (lambda path: metadata_log(path).write_bytes(b""), "metadata log in .* is empty"),
        (lambda path: metadata_log(path).unlink(), "metadata log in .* is empty"),
        (lambda path: (path / "bootstrap.checkpoint").unlink(), "there is no metadata log in"),
    ],
)
def test_metadata_that_has_suffered_is_not_begun_anew(
    tmp_path: Path, damage: Callable[[Path], object], telling: str, clean: bool
) -> None:
    folder = folder_with_topics(tmp_path / "data", clean=clean)
    damage(folder)
    before = sorted(str(path) for path in folder.rglob("*.log"))
    with pytest.raises(StartError, match=telling):
        EmbeddedBroker(data=str(folder)).start()
    assert sorted(str(path) for path in folder.rglob("*.log")) == before


def test_a_partition_that_no_topic_has_is_set_aside(tmp_path: Path) -> None:
    folder = folder_with_topics(tmp_path)
    (folder / "one-0").rename(folder / "three-0")
    with EmbeddedBroker(data=str(folder)) as broker, Raw(broker.port) as raw:
        assert raw.fetch("two").high_watermark == 1
        assert raw.fetch("one").high_watermark == 0
    (kept,) = folder.glob("three-0.*-stray")
    assert b"precious" in (kept / f"{0:020d}.log").read_bytes()


def test_a_folder_of_somebody_else_is_shared(tmp_path: Path) -> None:
    for name in ("photos-2023", "papers-to-delete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_bytes(b"precious")
    folder_with_topics(tmp_path)
    with EmbeddedBroker(data=str(tmp_path)) as broker, Raw(broker.port) as raw:
        assert raw.fetch("one").high_watermark == 1
    assert {path.read_bytes() for path in tmp_path.glob("p*/mine")} == {b"precious"}
    assert len(list(tmp_path.glob("p*/mine"))) == 2


def test_a_data_folder_that_is_not_mounted_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    first, second, elsewhere = (tmp_path / name for name in ("first", "second", "elsewhere"))
    folder_with_topics(Path(f"{first},{second}"))
    second.rename(elsewhere)
    for _ in range(2):
        with pytest.raises(StartError, match="is its disk mounted"):
            EmbeddedBroker(data=f"{first},{second}").start()
    shutil.rmtree(second)  # with the lock that was taken in it
    elsewhere.rename(second)
    with EmbeddedBroker(data=f"{first},{second}") as broker, Raw(broker.port) as raw:
        assert [raw.fetch(name).high_watermark for name in ("one", "two")] == [1, 1]
    (tmp_path / "third").mkdir()  # one that is new is made use of
    with EmbeddedBroker(data=f"{first},{second},{tmp_path / 'third'}") as broker, Raw(broker.port) as raw:
        raw.create("three")
    assert (tmp_path / "third" / "three-0").exists()
