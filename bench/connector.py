"""Spark's own Kafka connector, in an environment of its own: PySpark 4.0.0, and the connector's jars by Maven.

The connector belongs to one version of Spark, and for 4.0.0 all of its jars can be had. What Barnabas needs is
installed as well, so that both can be run on the same Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

SPARK_VERSION = "4.0.0"
ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "spark"
PACKAGES = (f"pyspark=={SPARK_VERSION}", "numpy", "pandas<3", "pyarrow")
ARTIFACTS = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
"""What the connector needs that PySpark does not bring."""


class Unavailable(Exception):
    """The connector cannot be run here. The message says why."""


class Connector(NamedTuple):
    python: Path
    jars: tuple[Path, ...]

    @property
    def jar_list(self) -> str:
        """As the setting spark.jars wants it."""
        return ",".join(map(str, self.jars))


def connector() -> Connector:
    """Made on the first call, and kept. Raises Unavailable."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None and not (tool == "mvn" and _is_complete(CACHE / "jars")):
            raise Unavailable(f"{tool} is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Connector(_python(CACHE / version), _jars(CACHE / "jars"))


def environment() -> dict[str, str]:
    """For a program that is to find this copy of Barnabas, also on the other Python."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def _python(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not _is_complete(folder):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        _run("a virtual environment", sys.executable, "-m", "venv", "--clear", folder)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(f"PySpark {SPARK_VERSION}", *pip, *PACKAGES, *project["dependencies"])
        _complete(folder)
    return python


def _jars(folder: Path) -> tuple[Path, ...]:
    if not _is_complete(folder):
        pom = CACHE / "pom.xml"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>c</groupId>'
            "<artifactId>c</artifactId><version>1</version><dependencies><dependency><groupId>org.apache.spark</groupId>"
            f"<artifactId>{ARTIFACTS[0]}</artifactId><version>{SPARK_VERSION}</version></dependency></dependencies>"
            "</project>",
            encoding="utf-8",
        )
        copy = ("dependency:copy-dependencies", f"-DincludeArtifactIds={','.join(ARTIFACTS)}")
        _run("Spark's Kafka connector", "mvn", "-q", "-B", "-f", pom, *copy, f"-DoutputDirectory={folder}")
        _complete(folder)
    return tuple(sorted(folder.glob("*.jar")))


def _run(what: str, *command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["it said nothing"]
        raise Unavailable(f"{what} cannot be had: {next((x for x in told if 'ERROR' in x), told[-1])}")


def _is_complete(folder: Path) -> bool:
    return (folder / ".complete").exists()


def _complete(folder: Path) -> None:
    """Last of all, so that an installation that was broken off is made again."""
    (folder / ".complete").touch()
