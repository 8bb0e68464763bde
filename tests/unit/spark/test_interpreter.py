"""The script that stands in for the interpreter of Spark's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark import interpreter

pyspark = pytest.importorskip("pyspark")
SPARK = str(Path(pyspark.__file__).parent)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the script is one of a POSIX shell")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "a cache")}


def path_seen(program: str, path: str | None, *arguments: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    code = "import os, sys; print(os.environ.get('PYTHONPATH', ''), sys.prefix, *sys.argv[1:], sep='\\n')"
    done = subprocess.run(
        [program, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_zips_and_the_jar_of_spark_are_taken_off_the_path(environment: dict[str, str], tmp_path: Path) -> None:
    own = f"{tmp_path}/with a space and a *"
    spark = (
        f"{SPARK}/python/lib/pyspark.zip:{SPARK}/python/lib/py4j-0.10-src.zip:{SPARK}/jars/spark-core_2.13-4.0.0.jar"
    )
    script = interpreter.worker_python(environment)
    assert script != sys.executable
    seen = path_seen(script, f"{spark}:{own}:{spark}:/other/pyspark.zip", "one word", "*")
    assert seen == [f"{own}:/other/pyspark.zip", sys.prefix, "one word", "*"]


def test_an_environment_behind_a_link(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes the real names of its zips."""
    link = tmp_path / "link"
    link.symlink_to(SPARK)
    monkeypatch.setattr(interpreter, "_installed_spark", lambda: str(link))
    script = interpreter.worker_python({**environment, "SPARK_HOME": SPARK})
    path = f"{link}/python/lib/pyspark.zip:{os.path.realpath(SPARK)}/python/lib/pyspark.zip:/own"
    assert path_seen(script, path)[0] == "/own"


def test_without_a_path_nothing_is_added(environment: dict[str, str]) -> None:
    assert path_seen(interpreter.worker_python(environment), None)[0] == ""


def test_a_spark_from_elsewhere_keeps_its_zips(environment: dict[str, str]) -> None:
    assert interpreter.worker_python({**environment, "SPARK_HOME": "/opt/spark"}) == sys.executable
    assert interpreter.worker_python({**environment, "SPARK_HOME": SPARK}) != sys.executable


def test_other_interpreters_have_scripts_of_their_own(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = interpreter.worker_python(environment)
    assert ours == interpreter.worker_python(environment)
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert interpreter.worker_python(environment) != ours
    assert Path(ours).is_file()


def test_a_spark_that_is_not_installed_is_taken_from_its_zips(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter.sysconfig, "get_path", lambda kind: "/elsewhere")
    assert interpreter.worker_python(environment) == sys.executable
