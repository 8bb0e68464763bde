"""A Spark session in a process of its own, on the Python that is asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

from bench.connector import environment

SCRIPT = Path(__file__).with_name("spark_driver.py")
STOP_TIMEOUT_S = 30.0


class Driver:
    """Started on entering; ``do`` gives it a job and waits for the answer."""

    def __init__(self, python: Path, source: str, jars: str, log: Path) -> None:
        # The program's folder is kept off the path (-P): its modules are not meant to be imported from there.
        self._command = [str(python), "-P", str(SCRIPT), source, jars]
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.version = ""

    def do(self, job: dict[str, Any]) -> dict[str, float]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self._command)} ended: {self._log.read_text(errors='replace')[-4000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={key: value for key, value in environment().items() if key != "SPARK_HOME"},
                start_new_session=True,
            )
        try:
            self.version = self._answer()["version"]
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """It stops when there are no more jobs; where it does not, it and its Java are killed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
