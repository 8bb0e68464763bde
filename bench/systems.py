"""The systems under measurement, each one broker in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

KAFKA_VERSION = "4.3.1"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "kafka"
SHIPPED_FLAGS = (
    "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
)
"""Heap and flags of kafka-server-start.sh and kafka-run-class.sh."""


class System:
    """A broker process; ``cpu_s`` and ``memory_mb`` are those of the process."""

    name = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, fsync: bool = False) -> Self:
        raise NotImplementedError

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    @property
    def _pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Barnabas(System):
    name = "barnabas"

    def start(self, *, fsync: bool = False) -> Self:
        arguments = ["--durable"] if fsync else []
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "barnabas", "serve", "--listen", f"127.0.0.1:{self.port}"),
                *("--data", str(self.folder / "data"), "--set", "num.partitions=8", *arguments),
            ],
            stdout=subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"listening on "):
                self.port = int(line.rsplit(b":", 1)[1])
                return self
        raise RuntimeError("barnabas did not start")


class Kafka(System):
    name = "kafka"

    def __init__(self) -> None:
        super().__init__()
        self._libs = libraries()

    def start(self, *, fsync: bool = False) -> Self:
        self.port = self.port or free_port()
        config = self._write_config(fsync=fsync)
        if not (self.folder / "data").exists():
            self._java(
                "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", config, "--standalone"
            )
        command = ["java", *SHIPPED_FLAGS.split(), "-cp", f"{self._libs}/*", "kafka.Kafka", config]
        with open(self.folder / "out", "ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + 120
        while not answers(self.port):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError((self.folder / "out").read_text()[-2000:])
            time.sleep(0.01)
        return self

    def _write_config(self, *, fsync: bool) -> str:
        path = self.folder / "server.properties"
        controller = free_port()
        path.write_text(
            "process.roles=broker,controller\nnode.id=1\nnum.partitions=8\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={self.folder / 'data'}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            + ("log.flush.interval.messages=1\n" if fsync else "")
        )
        return str(path)

    def _java(self, *arguments: str) -> None:
        subprocess.run(["java", "-cp", f"{self._libs}/*", *arguments], check=True, capture_output=True)


def libraries() -> Path:
    """Kafka's jars: KAFKA_LIBS, or fetched once with Maven."""
    given = os.environ.get("KAFKA_LIBS")
    if given:
        return Path(given)
    found = CACHE / "libs"
    if not found.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(
            f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId>"
            f"<version>{KAFKA_VERSION}</version></dependency>"
            for name in ("kafka_2.13", "kafka-tools")
        )
        (CACHE / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>'
            f"<artifactId>bench</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "-f", str(CACHE / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={found}"], check=True)
    return found


def unavailable() -> str | None:
    """Why Kafka cannot be run here."""
    if shutil.which("java") is None:
        return "java is not installed"
    if shutil.which("mvn") is None and not os.environ.get("KAFKA_LIBS") and not (CACHE / "libs").exists():
        return "mvn is not installed, and KAFKA_LIBS does not name a folder with Kafka's jars"
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether ApiVersions is answered: a bound port is not yet a broker."""
    request = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.sendall(request)
            return len(sock.recv(4)) == 4
    except OSError:
        return False
