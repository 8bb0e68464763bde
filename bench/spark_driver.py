"""One Spark session that does the jobs it is told to: a line of JSON in, a line of JSON out.

    spark_driver.py <name of the format> <jars, or nothing>

A job names its kind (noop, parquet, write), whether it streams, the topic, and folders. The time that is told back is
from the start of the query to its end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from barnabas.spark import session

Job = dict[str, Any]
SOURCE_SCHEMA = "key binary, value binary"


class Jobs:
    def __init__(self, spark: SparkSession, source: str) -> None:
        self._spark = spark
        self._source = source

    def run(self, job: Job) -> dict[str, float]:
        """How long it took, and how many rows came out where they can be counted."""
        scratch = Path(job["folder"]) / f"scratch-{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        frame = self._read_files(job) if job["kind"] == "write" else self._read_topic(job)
        began = time.perf_counter()
        read = self._stream(frame, job, scratch) if job["streams"] else self._batch(frame, job, scratch)
        seconds = time.perf_counter() - began
        if job["kind"] == "parquet":
            read = self._spark.read.parquet(str(scratch / "out")).count()
        shutil.rmtree(scratch, ignore_errors=True)
        return {"seconds": seconds, "rows": read}

    def _read_topic(self, job: Job) -> DataFrame:
        reader = self._spark.readStream if job["streams"] else self._spark.read
        options = {"kafka.bootstrap.servers": job["servers"], "subscribe": job["topic"], "startingOffsets": "earliest"}
        return reader.format(self._source).options(**options).load()

    def _read_files(self, job: Job) -> DataFrame:
        reader = self._spark.readStream if job["streams"] else self._spark.read
        return reader.schema(SOURCE_SCHEMA).parquet(job["files"])

    def _batch(self, frame: DataFrame, job: Job, scratch: Path) -> int:
        writer = frame.write.mode("append")
        if job["kind"] == "noop":
            writer.format("noop").save()
        elif job["kind"] == "parquet":
            writer.parquet(str(scratch / "out"))
        else:
            writer.format(self._source).options(**self._target(job)).save()
        return -1

    def _stream(self, frame: DataFrame, job: Job, scratch: Path) -> int:
        writer = frame.writeStream.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True)
        if job["kind"] == "noop":
            writer = writer.format("noop")
        elif job["kind"] == "parquet":
            writer = writer.format("parquet").option("path", str(scratch / "out"))
        else:
            writer = writer.format(self._source).options(**self._target(job))
        query = writer.start()
        query.awaitTermination()
        return sum(int(progress["numInputRows"]) for progress in query.recentProgress)

    @staticmethod
    def _target(job: Job) -> dict[str, str]:
        return {"kafka.bootstrap.servers": job["servers"], "topic": job["topic"]}


def main() -> None:
    source, jars = sys.argv[1], sys.argv[2]
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what Spark and its workers print is not an answer
    with session("bench", "local[2]", {"spark.jars": jars} if jars else {}) as spark:
        jobs = Jobs(spark, source)
        answers.write(json.dumps({"version": spark.version}) + "\n")
        for line in sys.stdin:
            answers.write(json.dumps(jobs.run(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
