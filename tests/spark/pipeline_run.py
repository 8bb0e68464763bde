"""A pipeline project from its beginning to its errors, in one process with one Connect session; prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from barnabas.spark.pipelines.definitions import PipelineError, open_project
from barnabas.spark.pipelines.events import Choice, FlowEvent, FlowProgress
from barnabas.spark.pipelines.project import make
from barnabas.spark.pipelines.run import connect, run_once

BROKEN = {
    "resolve.sql": "-- a comment\n\nCREATE MATERIALIZED VIEW broken AS SELECT nothing FROM shop_orders_parsed;\n",
    "parse.sql": "CREATE MATERIALIZED VIEW broken AS\nSELEC 1;\n",
    "syntax.py": "import os\n\ndef f(:\n",
    "raises.py": "from pyspark import pipelines as dp\n\n\nraise RuntimeError('on purpose')\n",
    "notes.txt": "no definitions",
}


def main(folder: Path, topic: str, servers: str) -> dict[str, Any]:
    make(folder, topic, servers)
    project = open_project(folder)
    spark = connect(project, "local[2]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    told: list[FlowProgress | FlowEvent] = []
    try:
        first = run_once(project, spark, Choice(), told.append)
        second = run_once(project, spark, Choice(), lambda _: None)
        counted = [row.asDict() for row in spark.table("shop_orders_per_minute").collect()]
        errors = {}
        for name, text in BROKEN.items():
            file = folder / "transformations" / name
            file.write_text(text)
            try:
                run_once(project, spark, Choice(dry=True), lambda _: None)
            except PipelineError as error:
                errors[name] = str(error)
            file.unlink()
    finally:
        spark.stop()
    progress = [item for item in told if isinstance(item, FlowProgress)]
    return {
        "rows": first.rows,
        "again": second.rows,
        "lag": first.lag,
        "flows": sorted({item.flow for item in progress}),
        "messages": sum(row["messages"] for row in counted),
        "amount": sum(row["amount"] for row in counted),
        "errors": errors,
    }


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])))
