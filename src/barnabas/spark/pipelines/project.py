"""A new pipeline project, wired to a topic: ``barnabas pipeline init``."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import NamedTuple

WAREHOUSE = "spark-warehouse"
"""Where tables go unless Spark is told otherwise: Spark's own name for it, in the project's folder."""

METASTORE = "metastore_db"
"""What Spark knows of the tables, likewise."""

SPEC = Template(
    """\
# A project of Spark Declarative Pipelines. Run it with `barnabas pipeline run`, or with Spark's own `spark-pipelines`.
name: $name
# Where streaming flows keep their place in the topic. Thrown away, they begin again at the topic's beginning.
storage: $storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
"""
)

PYTHON = Template(
    '''\
"""The topic $topic as a table, and its messages with their JSON taken apart."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

SERVERS = "$servers"
TOPIC = "$topic"

# What is known of the values. Fields that are not named here stay in `value`; a value that is no JSON has nulls.
FIELDS = "id STRING, amount DOUBLE"


@dp.table(comment="Every message of the topic, as it came.")
def $raw() -> DataFrame:
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load()
    )


@dp.table(comment="The messages with their fields.")
def $parsed() -> DataFrame:
    value = f.col("value").cast("string")
    return spark.readStream.table("$raw").select(
        f.col("key").cast("string").alias("key"),
        f.from_json(value, FIELDS).alias("fields"),
        value.alias("value"),
        "partition",
        "offset",
        "timestamp",
    )
'''
)

SQL = Template(
    """\
-- How much came in each minute, and how much of it could be read. Every run makes it anew from what the tables hold.
CREATE MATERIALIZED VIEW $per_minute AS
SELECT
  date_trunc('MINUTE', timestamp) AS minute,
  count(*) AS messages,
  count_if(fields IS NULL OR fields.id IS NULL) AS without_id,
  sum(fields.amount) AS amount
FROM $parsed
GROUP BY date_trunc('MINUTE', timestamp);
"""
)

README = Template(
    """\
# $name

Reads the topic `$topic` at `$servers` into tables, with Spark Declarative Pipelines.

    barnabas pipeline run                 # bring the tables up to date, once
    barnabas pipeline run --continuous    # and go on
    barnabas pipeline run --dry-run       # only check the definitions

- `spark-pipeline.yml` is the pipeline; its tables are defined in `transformations/`, in Python (`$topic_file.py`) and
  in SQL (`per_minute.sql`).
- The tables are in `$warehouse/`, as Parquet: `spark.table("$per_minute")`, or any reader of Parquet.
- On a cluster: `barnabas pipeline run --master spark://HOST:7077` (or yarn, k8s://…, sc://… for Spark Connect). The
  executors need the package `barnabas[spark]` in their Python; see the documentation of Barnabas.
"""
)


IGNORED = Template("/$warehouse/\n/$metastore*\n/storage/\n__pycache__/\n")


class Made(NamedTuple):
    folder: Path
    files: list[Path]


class ProjectExists(Exception):
    """Nothing is overwritten."""


def make(folder: Path, topic: str, servers: str, name: str | None = None) -> Made:
    """Writes a project. Raises ProjectExists where one of its files is there already."""
    folder = folder.resolve()
    stem = identifier(topic)
    words = {
        "name": name or folder.name,
        "topic": topic,
        "topic_file": stem,
        "servers": servers,
        "raw": f"{stem}_raw",
        "parsed": f"{stem}_parsed",
        "per_minute": f"{stem}_per_minute",
        "storage": (folder / "storage").as_uri(),
        "warehouse": WAREHOUSE,
        "metastore": METASTORE,
    }
    texts = {
        folder / "spark-pipeline.yml": SPEC,
        folder / "README.md": README,
        folder / ".gitignore": IGNORED,
        folder / "transformations" / f"{stem}.py": PYTHON,
        folder / "transformations" / "per_minute.sql": SQL,
    }
    for file in texts:
        if file.exists():
            raise ProjectExists(f"{file} is there already: nothing was written")
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.substitute(words), encoding="utf-8")
    return Made(folder, list(texts))


def identifier(topic: str) -> str:
    """A name for tables and files: what SQL and Python take without quotes."""
    name = re.sub(r"\W+", "_", topic).strip("_").lower() or "topic"
    return name if not name[0].isdigit() else f"t_{name}"
