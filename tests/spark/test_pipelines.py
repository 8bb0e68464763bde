"""Projects of Spark Declarative Pipelines: begun, run, run again, and wrong in every way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli import main
from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from barnabas.spark.pipelines.definitions import PipelineError, open_project
from barnabas.spark.pipelines.project import ProjectExists, identifier, make
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import SOURCE, write

SCRIPT = Path(__file__).with_name("pipeline_run.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_a_project_runs_and_its_errors_name_file_and_line(
    client: Client, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    create_topic(client, "shop.orders", partitions=2)
    for partition in range(2):
        rows = [(b"k", json.dumps({"id": str(n), "amount": 1.5}).encode()) for n in range(100)]
        write(client, "shop.orders", rows, partition=partition, timestamp=int(time.time() * 1000))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), str(tmp_path / "shop"), "shop.orders", broker.bootstrap_servers],
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    told = json.loads(lines[0].removeprefix("RESULT "))
    assert told["rows"] == {"shop_orders_raw": 200, "shop_orders_parsed": 200}
    assert told["again"] == {}, "nothing new, nothing done"
    assert told["lag"] == {"shop_orders_raw": 0}
    assert (told["messages"], told["amount"]) == (200, 300.0)
    errors = told["errors"]
    assert errors["resolve.sql"].startswith("transformations/resolve.sql:3: ")
    assert "`nothing`" in errors["resolve.sql"]
    assert errors["parse.sql"].startswith("transformations/parse.sql:2: ")
    assert errors["syntax.py"].startswith("transformations/syntax.py:3: ")
    assert errors["raises.py"] == "transformations/raises.py:4: on purpose"
    assert "notes.txt` has an unsupported extension" in errors["notes.txt"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    made = make(tmp_path / "p", "a.topic", "h:1")
    assert {file.name for file in made.files} == {
        "spark-pipeline.yml",
        "README.md",
        ".gitignore",
        "a_topic.py",
        "per_minute.sql",
    }
    with pytest.raises(ProjectExists, match=r"spark-pipeline\.yml is there already"):
        make(tmp_path / "p", "a.topic", "h:1")


@pytest.mark.parametrize(
    ("topic", "name"), [("orders", "orders"), ("My.Topic-1", "my_topic_1"), ("1x", "t_1x"), ("-", "topic")]
)
def test_names_that_sql_takes(topic: str, name: str) -> None:
    assert identifier(topic) == name


def test_a_project_is_found_from_below_and_its_faults_are_named(tmp_path: Path) -> None:
    make(tmp_path / "p", "t", "h:1")
    assert open_project(tmp_path / "p" / "transformations").folder == (tmp_path / "p").resolve()
    with pytest.raises(PipelineError, match=r"there is no spark-pipeline\.yaml or spark-pipeline\.yml"):
        open_project(tmp_path)
    spec = tmp_path / "p" / "spark-pipeline.yml"
    spec.write_text("name: x\n")
    with pytest.raises(PipelineError, match="storage"):
        open_project(spec)
    spec.write_text("- a list\n")
    with pytest.raises(PipelineError, match=r"spark-pipeline\.yml"):
        open_project(spec)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "t", "--table", "elsewhere"], "names no table"),
        (["verify", "t", "--table", "delta:/nowhere/at/all", "--offline"], "there is no table at"),
        (["verify", "t", "--table", "delta:/x", "--range", "0-5"], "is not PARTITION:START-END"),
        (["archive", "t", "--to", "iceberg:/w#nameonly"], "NAMESPACE.NAME"),
        (["replay", "nowhere", "--to", "nothing"], "there is no such topic"),
        (["compare", "delta:/x", "t"], "LEFT is a topic"),
        (["run", "--full-refresh-all", "--refresh", "x"], "leave out --refresh"),
        (["run", "--continuous", "--dry-run"], "cannot be --continuous"),
    ],
)
def test_what_is_asked_wrongly_is_said_before_spark_starts(
    broker: EmbeddedBroker, arguments: list[str], says: str
) -> None:
    done = CliRunner().invoke(main, ["pipeline", *arguments], env={"BARNABAS_BOOTSTRAP": broker.bootstrap_servers})
    assert done.exit_code in (1, 2)
    assert says in done.output
