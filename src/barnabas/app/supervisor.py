"""Keeps the workers of one machine running: starts them, restarts what dies, stops them in order.

    start all --a worker ends--> wait (longer after each failure, up to a cap) --> start it again
    a worker that keeps failing right after its start --> stop all, and say why
    SIGTERM, SIGINT --> stop the brokers, then the controller, which they need to hand over leadership

Each worker's output goes to this process's, with the worker's number. A worker's standard input is a pipe from here: it
ends when this process is killed, and the worker stops.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import IO

from msgspec import Struct

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
HEALTHY_S = 10.0
"""A worker that ran so long had a good start."""
MAX_BAD_STARTS = 5
STOP_TIMEOUT_S = 40.0
SIGNALLED = -1
"""In place of a worker's number."""

Say = Callable[[str, bool], None]
"""Writes a line; True for standard error."""


class _Child(Struct):
    number: int
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    bad_starts: int = 0
    start_at_s: float | None = 0.0
    """When it is due to be started; None while it runs."""
    last_line: str = ""


def back_off_s(bad_starts: int) -> float:
    return min(MAX_BACKOFF_S, FIRST_BACKOFF_S * (1 << max(0, bad_starts - 1)))


class Supervisor:
    def __init__(self, commands: Sequence[Sequence[str]], say: Say) -> None:
        self._children = [_Child(number, list(command)) for number, command in enumerate(commands)]
        self._say = say
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of workers that have ended."""

    def run(self) -> int:
        """Until a signal, or until a worker cannot be helped; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        hopeless: _Child | None = None
        while hopeless is None:
            self._start_due()
            ended = self._next_end()
            if ended == SIGNALLED:
                break
            if ended is not None:
                hopeless = self._on_end(self._children[ended])
        is_clean = self._stop_all()
        if hopeless is not None:
            self._say(
                f"barnabas: Worker {hopeless.number} failed {hopeless.bad_starts} times in a row right after its "
                f"start, the last time with: {hopeless.last_line or 'no word'} All workers were stopped.",
                True,
            )
            return 1
        return 0 if is_clean else 1

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._ended.put(SIGNALLED)

    # Running

    def _start_due(self) -> None:
        now_s = time.monotonic()
        for child in self._children:
            if child.start_at_s is not None and child.start_at_s <= now_s:
                self._start(child)

    def _start(self, child: _Child) -> None:
        process = subprocess.Popen(
            child.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C reaches this process, which stops the workers in order
        )
        child.process, child.started_s, child.start_at_s = process, time.monotonic(), None
        threading.Thread(target=self._watch, args=(child, process), daemon=True).start()

    def _watch(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        """On a thread of its own: forwards the output, and tells of the end."""
        errors = threading.Thread(target=self._forward, args=(child, process.stderr, True), daemon=True)
        errors.start()
        self._forward(child, process.stdout, False)
        errors.join()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._ended.put(child.number)

    def _forward(self, child: _Child, stream: IO[bytes] | None, is_error: bool) -> None:
        assert stream is not None
        with stream:
            for line in stream:
                text = line.decode(errors="replace").rstrip("\n")
                child.last_line = text or child.last_line
                self._say(numbered(child.number, text), is_error)

    def _next_end(self) -> int | None:
        """The number of a worker that has ended; None where another is due to be started first."""
        due = [child.start_at_s for child in self._children if child.start_at_s is not None]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        try:
            return self._ended.get(timeout=wait_s)
        except queue.Empty:
            return None

    def _on_end(self, child: _Child) -> _Child | None:
        """The worker, where starting it again would not help."""
        assert child.process is not None
        code = child.process.returncode
        ran_s = time.monotonic() - child.started_s
        child.bad_starts = child.bad_starts + 1 if ran_s < HEALTHY_S else 0
        if child.bad_starts >= MAX_BAD_STARTS:
            return child
        wait_s = back_off_s(child.bad_starts)
        child.start_at_s = time.monotonic() + wait_s
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._say(numbered(child.number, f"ended after {ran_s:.0f} s ({how}); starts again in {wait_s:.1f} s"), True)
        return None

    # Stopping

    def _stop_all(self) -> bool:
        """Whether all stopped cleanly."""
        others = self._stop(self._children[1:])
        return self._stop(self._children[:1]) and others

    def _stop(self, children: Sequence[_Child]) -> bool:
        running = [child.process for child in children if child.process is not None and child.process.poll() is None]
        for process in running:
            process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for process in running:
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return all(process.returncode == 0 for process in running)


def numbered(number: int, line: str) -> str:
    """A line of a worker's log with its number: as a field where the line is JSON."""
    if line.startswith("{") and line.endswith("}"):
        return f'{{"worker": {number}{", " if len(line) > len("{}") else ""}{line[1:]}'
    return f"worker {number}: {line}"


def command_of(config: str | None, settings: Sequence[tuple[str, str]]) -> list[str]:
    """What starts one worker."""
    command = [sys.executable, "-m", "barnabas", "serve", "--until-stdin-ends"]
    if config is not None:
        command += ["--config", config]
    for key, value in settings:
        command += ["--set", f"{key}={value}"]
    return command
