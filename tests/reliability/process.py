"""A broker as a separate process, for tests that kill it or limit its resources."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

PATIENCE_S = 240.0
"""For what hangs. On a busy machine a start that takes half a second may take half a minute."""
_PAGE = os.sysconf("SC_PAGESIZE")


class BrokerProcess:
    """Starts on a free port; started again, it takes the same one, so that clients find it.

    ``data`` None keeps everything in memory. ``under`` is put before the command (prlimit, say), ``environment`` is
    added to ours. What the broker writes goes to a file, so that it never waits for a reader: ``output``.
    """

    def __init__(
        self,
        data: Path | str | None,
        *arguments: str,
        under: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = None if data is None else str(data)
        self.port = 0
        self._arguments = arguments
        self._under = under
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as this object

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """Everything said since the last start."""
        return os.pread(self._output.fileno(), 1 << 24, 0).decode(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE

    @property
    def peak_bytes(self) -> int:
        """The most memory it ever had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))

    @property
    def descriptor_count(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def launch(self) -> Self:
        """Starts the process and waits for nothing."""
        command = [*self._under, sys.executable, "-m", "barnabas", "serve", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--memory"] if self.data is None else ["--data", self.data]
        self._output.seek(0)
        self._output.truncate()
        self._process = subprocess.Popen(
            [*command, *self._arguments], stdout=self._output, stderr=subprocess.STDOUT, env=self._environment
        )
        return self

    def start(self) -> Self:
        """Returns when clients can connect."""
        self.launch()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for line in self.output.splitlines(keepends=True):
                if line.startswith("listening on ") and line.endswith("\n"):
                    self.port = int(line.rsplit(":", 1)[1])
                    return self
            if not self.is_alive or time.monotonic() > deadline:
                self._end(signal.SIGKILL)
                raise RuntimeError(f"the broker did not start: {self.output}")
            time.sleep(0.01)

    def kill(self) -> None:
        """As a crash: no time to say anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code, once the process has ended by itself."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __del__(self) -> None:
        self._output.close()
