"""Runs the C load generator (client.c) and reads what it reports."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import confluent_kafka

from bench.systems import System

SOURCE = Path(__file__).with_name("client.c")


@dataclass(frozen=True)
class Result:
    """One run: what the client saw, and what it cost the broker."""

    count: int
    seconds: float
    cpu_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def cpu_ms_per_mb(self, message_bytes: int) -> float:
        return self.cpu_s * 1e3 / (self.count * message_bytes / 1e6)


chosen: Path | None = None
"""A librdkafka to measure with instead of the one of the installed confluent-kafka."""


@cache
def library() -> Path:
    if chosen is not None:
        if not chosen.is_file():
            raise SystemExit(f"--librdkafka: there is no file {chosen}")
        return chosen.absolute()
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = next(folder.glob("librdkafka*.so*"), None)
    if found is None:
        raise SystemExit(f"no librdkafka in {folder}: install the confluent-kafka wheel")
    return found


def version() -> str:
    ask = ctypes.CDLL(str(library())).rd_kafka_version_str
    ask.restype = ctypes.c_char_p
    told: bytes = ask()
    return told.decode()


@cache
def client() -> str:
    """Compiles the generator against the library."""
    if shutil.which("gcc") is None:
        raise SystemExit("gcc is not installed: the load generator is a C program")
    target = Path(tempfile.mkdtemp(prefix="bench-client-")) / "client"
    flags = ["-O2", "-pthread", f"-Wl,-rpath,{library().parent}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(["gcc", str(SOURCE), "-o", str(target), str(library()), *flags], check=True)
    return str(target)


def run(system: System, mode: str, *arguments: object) -> Result:
    cpu = system.cpu_s()
    command = [client(), mode, system.servers, *map(str, arguments)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if output.returncode:
        raise RuntimeError(f"{' '.join(command)}: {output.stdout} {output.stderr}")
    told = json.loads(output.stdout)
    latencies = {f"{name}_ms": told[name] * 1e3 for name in ("p50", "p99", "p999") if name in told}
    return Result(told["count"], told["seconds"], system.cpu_s() - cpu, **latencies)
