"""The same project on a real standalone cluster: one master and two workers on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from barnabas.client.wire.groups import list_groups
from barnabas.spark.java import find_java
from barnabas.spark.pipelines.project import make
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import SOURCE, write

START_TIMEOUT_S = 90.0


@contextmanager
def daemon(name: str, log: Path, says: str, *arguments: str) -> Iterator[str]:
    """A process of Spark's own; what it says when it is ready."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": find_java().home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (found := re.search(says, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield found[1]
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the executors that a worker has started, too
        process.wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = stack.enter_context(
            daemon("master.Master", tmp_path / "master.log", r"Starting Spark master at (spark://[\w.:]+)", *here)
        )
        for number in (1, 2):
            work = tmp_path / f"worker-{number}"
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            log = tmp_path / f"worker-{number}.log"
            stack.enter_context(
                daemon("worker.Worker", log, r"Successfully registered with master (\S+)", *here, *limits, url)
            )
        yield url


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pipeline_runs_on_two_workers(client: Client, broker: EmbeddedBroker, master: str, tmp_path: Path) -> None:
    create_topic(client, "clustered", partitions=2)
    rows = [(b"k", json.dumps({"id": str(n), "amount": 2}).encode()) for n in range(300)]
    for partition in range(2):
        write(client, "clustered", rows, partition=partition, timestamp=int(time.time() * 1000))
    make(tmp_path / "project", "clustered", broker.bootstrap_servers)
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": SOURCE,  # where the package is installed, this is not needed
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(tmp_path / "project"), "--json"]
    done = subprocess.run(
        [*command, "--master", master, *given],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["rows"] == {"clustered_parsed": 600, "clustered_raw": 600}
    table = tmp_path / "project" / "spark-warehouse" / "clustered_raw"
    assert ds.dataset(table, format="parquet", exclude_invalid_files=True).count_rows() == 600
    used = [path for path in tmp_path.glob("worker-*/app-*/*") if path.is_dir()]
    assert len({path.parents[1] for path in used}) == 2, "both workers had an executor"
    assert any("barnabas-spark" in group.group_id for group in list_groups(client))
