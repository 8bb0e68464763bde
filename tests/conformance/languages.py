"""Clients of other languages against a broker and a cluster: ``make conformance``, each if its tools are installed.

Java's kafka-clients and Kafka Streams, franz-go, kafkajs, Spark's own connector: each program prints what it checked
and ends with "all ok". Kafka's command-line tools (``kafka_tools``) run against a cluster of three, and a
Kafka broker joins one (``kafka_broker``), and Kafka takes over the folders of one (``kafka_folders``). Kafka Streams
counts exactly once while it and brokers are killed (``exactly-once``), and requests of Kafka's transactional producer
are held and repeated (``late-requests``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.testing import EmbeddedCluster
from bench.connector import Unavailable, connector
from tests.conformance import kafka_broker, kafka_folders, kafka_tools
from tests.reliability.process import BrokerProcess

HERE = Path(__file__).parent
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "conformance"
KAFKA_VERSION = "4.3.1"
TIMEOUT_S = 600.0
TOOLS, BROKER, FOLDERS = "tools", "broker", "folders"
EXACTLY_ONCE, LATE_REQUESTS = "exactly-once", "late-requests"
JAVA_TOOLS = "java", "javac", "mvn"


def java_libraries() -> Path:
    """kafka-clients and kafka-streams with what they need, fetched once with Maven."""
    libs = CACHE / "java"
    if not libs.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        pom = CACHE / "pom.xml"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>c</groupId>'
            "<artifactId>c</artifactId><version>1</version><dependencies><dependency><groupId>org.apache.kafka</groupId>"
            f"<artifactId>kafka-streams</artifactId><version>{KAFKA_VERSION}</version></dependency></dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        subprocess.run(command, check=True)
    return libs


def java(program: str) -> Callable[[str], list[str]]:
    def command(servers: str) -> list[str]:
        libs = java_libraries()
        classes = CACHE / "classes"
        subprocess.run(
            ["javac", "-nowarn", "-cp", f"{libs}/*", "-d", str(classes), str(HERE / "java" / f"{program}.java")],
            check=True,
        )
        return ["java", "-cp", f"{classes}:{libs}/*", program, servers, tempfile.mkdtemp(prefix="conformance-")]

    return command


def go(servers: str) -> list[str]:
    folder = CACHE / "go"
    shutil.copytree(HERE / "go", folder, dirs_exist_ok=True)
    subprocess.run(["go", "mod", "tidy"], cwd=folder, check=True, capture_output=True)
    subprocess.run(["go", "build", "-o", "conformance", "."], cwd=folder, check=True)
    return [str(folder / "conformance"), servers]


def node(servers: str) -> list[str]:
    folder = CACHE / "node"
    shutil.copytree(HERE / "node", folder, dirs_exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return ["node", str(folder / "main.js"), servers]


def spark(servers: str) -> list[str]:
    found = connector()
    program = HERE / "spark_connector.py"
    folder = tempfile.mkdtemp(prefix="conformance-")
    # Its folder is kept off the path (-P), or Java's programs there would be the module java.
    return [str(found.python), "-P", str(program), servers, found.jar_list, folder]


CLIENTS: dict[str, tuple[tuple[str, ...], Callable[[str], list[str]]]] = {
    "java": (JAVA_TOOLS, java("Conformance")),
    "transactions": (JAVA_TOOLS, java("Transactions")),
    "streams": (JAVA_TOOLS, java("Streams")),
    "go": (("go",), go),
    "node": (("node", "npm"), node),
    "spark": (("java", "mvn"), spark),
}


@contextmanager
def serving(brokers: int) -> Iterator[str]:
    """The addresses of a single broker, or of a cluster whose topics have three replicas."""
    if brokers == 1:
        with tempfile.TemporaryDirectory() as data, BrokerProcess(data) as broker:
            yield broker.bootstrap_servers
    else:
        with EmbeddedCluster(brokers=brokers) as cluster:
            yield cluster.bootstrap_servers


def has_all(tools: tuple[str, ...], name: str) -> bool:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        print(f"{name}: skipped, {missing[0]} is not installed")
    return not missing


def run_with_kills(name: str, check: Callable[[], object]) -> bool:
    """A short slice of a run of tests/reliability that needs a Java."""
    if not has_all(JAVA_TOOLS, name):
        return True
    try:
        result = check()
    except (AssertionError, OSError, RuntimeError) as problem:
        print(f"{name}: FAILED, {problem}", flush=True)
        return False
    print(f"{name}: passed, {result}", flush=True)
    return True


def exactly_once() -> object:
    from tests.reliability import streams  # which imports this module

    return [streams.run(brokers=brokers, kills=3, seed=1, quiet=True) for brokers in (1, 3)]


def late_requests() -> object:
    from tests.reliability import transaction_proxy  # which imports this module

    return transaction_proxy.run(rounds=3, seed=1, with_java=True, quiet=True)


def run(name: str, brokers: int) -> bool:
    tools, prepare = CLIENTS[name]
    if not has_all(tools, name):
        return True
    with serving(brokers) as servers:
        try:
            command = prepare(servers)
        except Unavailable as error:
            print(f"{name}: skipped, {error}")
            return True
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env={**os.environ}
        )
    passed = result.returncode == 0 and "all ok" in result.stdout
    checks = result.stdout.count("ok ")
    print(f"{name}, {brokers} broker(s): {'passed' if passed else 'FAILED'}, {checks} checks", flush=True)
    if not passed:
        print(result.stdout[-3000:], result.stderr[-3000:])
    return passed


def main() -> None:
    wanted = sys.argv[1:] or [*CLIENTS, TOOLS, BROKER, FOLDERS, EXACTLY_ONCE, LATE_REQUESTS]
    outcomes = [run(name, brokers) for name in wanted if name in CLIENTS for brokers in (1, 3)]
    outcomes += [kafka_tools.run()] if TOOLS in wanted else []
    outcomes += [kafka_broker.run()] if BROKER in wanted else []
    outcomes += [kafka_folders.run()] if FOLDERS in wanted else []
    outcomes += [run_with_kills(EXACTLY_ONCE, exactly_once)] if EXACTLY_ONCE in wanted else []
    outcomes += [run_with_kills(LATE_REQUESTS, late_requests)] if LATE_REQUESTS in wanted else []
    sys.exit(0 if all(outcomes) else 1)


if __name__ == "__main__":
    main()
