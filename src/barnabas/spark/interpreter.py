"""The Python that Spark starts its workers with: this one, but with the installed PySpark instead of the zipped one.

Spark puts zips of PySpark and py4j and a jar of its own first on the path of every worker, for executors that have no
PySpark. The zips hold sources only: every process that is started compiles them, which takes a second, and every task
on Spark 4.0 reads the three tables of contents again, which takes another fifth. Where PySpark is installed, none of
them is needed: a script in the interpreter's place takes them off the path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from barnabas.spark.java import cache_folder, keep

SCRIPT = """#!/bin/sh
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        {zipped}) ;;
        *) kept=$kept${{kept:+:}}$entry ;;
    esac
done
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def worker_python(environment: Mapping[str, str]) -> str:
    """The program to start workers of this machine with: the interpreter itself where no script can help."""
    spark = _installed_spark()
    if spark is None or os.name != "posix" or not _is_same(environment.get("SPARK_HOME", spark), spark):
        return sys.executable
    text = SCRIPT.format(zipped=_patterns(spark), python=shlex.quote(sys.executable))
    # Named after what is in it: sessions of other interpreters have scripts of their own.
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    script = cache_folder(environment) / "python" / name
    keep(script, text, mode=0o755)
    return str(script)


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _patterns(spark: str) -> str:
    """For the shell. Spark goes by its folder's real name, however the interpreter has found it."""
    folders = dict.fromkeys(shlex.quote(name) for name in (spark, os.path.realpath(spark)))
    return " | ".join(f"{folder}/python/lib/*.zip | {folder}/jars/*.jar" for folder in folders)


def _installed_spark() -> str | None:
    """The folder of PySpark, if the interpreter finds it there without being told where to look."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    installed = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    return str(folder) if str(folder.parent) in installed else None
