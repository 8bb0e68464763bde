"""A broker as a process of its own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

START_TIMEOUT_S = 60.0


class BrokerProcess:
    """Starts on a free port; started again, it takes the same one, so that clients find it."""

    def __init__(self, data: Path | str, *arguments: str) -> None:
        self.data = str(data)
        self.port = 0
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        command = [sys.executable, "-m", "barnabas", "serve", "--listen", f"127.0.0.1:{self.port}", "--data", self.data]
        self._process = subprocess.Popen(
            [*command, *self._arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                return self
        raise RuntimeError(f"the broker did not start: {''.join(lines)}")

    def kill(self) -> None:
        """As a crash: no time to say anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        code = process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
