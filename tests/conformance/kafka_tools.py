"""Kafka's own command-line tools against a cluster of three: ``python -m tests.conformance.kafka_tools [CHECK…]``.

Each check runs a tool as an administrator would, and looks at what it prints or at what it changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer

from barnabas.testing import EmbeddedCluster
from bench.systems import libraries, unavailable

TOOLS = "org.apache.kafka.tools"
TIMEOUT_S = 120.0
WAIT_S = 60.0
TOPIC = "orders"


class Failed(AssertionError):
    """A tool did not do its job."""


class Tools:
    """Runs tools against a cluster and counts what they got right."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._classpath = f"{libraries()}/*"
        self.passed = 0
        self.failures = 0

    def attempt(self, check: Callable[[Tools], None]) -> None:
        try:
            check(self)
        except Failed as problem:
            self.failures += 1
            print(f"FAILED {check.__name__}: {problem}", flush=True)

    def run(self, tool: str, *arguments: str, server_last: bool = False) -> str:
        """What the tool printed. Raises Failed where it ended with an error."""
        name = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        server = ["--bootstrap-server", self.cluster.bootstrap_servers]
        words = [*arguments, *server] if server_last else [*server, *arguments]
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", self._classpath, name, *words]
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        output = result.stdout + result.stderr
        if result.returncode != 0:
            raise Failed(f"{tool} {' '.join(arguments)} ended with {result.returncode}: {output[-2000:]}")
        return output

    def expect(self, pattern: str, tool: str, *arguments: str, server_last: bool = False) -> str:
        output = self.run(tool, *arguments, server_last=server_last)
        self.check(re.search(pattern, output) is not None, f"{tool} {' '.join(arguments)}", f"no {pattern} in {output}")
        return output

    def check(self, holds: bool, what: str, otherwise: str) -> None:
        if not holds:
            raise Failed(f"{what}: {otherwise[-2000:]}")
        self.passed += 1
        print(f"ok {what}", flush=True)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not holds():
            if time.monotonic() >= deadline_s:
                raise Failed(f"{what}: not within {WAIT_S:.0f} s")
        self.check(True, what, "")

    def write(self, name: str, value: object) -> str:
        path = self.folder / name
        path.write_text(json.dumps(value))
        return str(path)

    def describe(self, topic: str) -> list[dict[str, str]]:
        """Rows of kafka-topics --describe, by partition."""
        rows = []
        for line in self.run("TopicCommand", "--describe", "--topic", topic).splitlines():
            fields = dict(re.findall(r"(\w+): ?(\S*)", line))
            if "Partition" in fields:
                rows.append(fields)
        return rows


def topics(tools: Tools) -> None:
    tools.expect(
        f"Created topic {TOPIC}",
        *("TopicCommand", "--create", "--topic", TOPIC, "--partitions", "3", "--replication-factor", "3"),
        *("--config", "retention.ms=86400000"),
    )
    rows = tools.describe(TOPIC)
    tools.check(
        len(rows) == 3 and all(len(row["Isr"].split(",")) == 3 for row in rows), "kafka-topics --describe", str(rows)
    )
    tools.check(len({row["Leader"] for row in rows}) == 3, "leaders are spread", str(rows))
    tools.expect(TOPIC, "TopicCommand", "--list")
    tools.run("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "4")
    tools.check(len(tools.describe(TOPIC)) == 4, "kafka-topics --alter --partitions", "")
    output = tools.run("TopicCommand", "--describe", "--under-replicated-partitions")
    tools.check(TOPIC not in output, "kafka-topics --under-replicated-partitions", output)
    for flag in ("--at-min-isr-partitions", "--under-min-isr-partitions", "--unavailable-partitions"):
        output = tools.run("TopicCommand", "--describe", flag)
        tools.check(TOPIC not in output, f"kafka-topics {flag}", output)


def data(tools: Tools) -> None:
    servers = tools.cluster.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number in range(400):
        producer.produce(TOPIC, b"%d" % number, partition=number % 4)
    tools.check(producer.flush(30) == 0, "a producer writes", "not all was acknowledged")
    settings = {"group.id": "tools", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe([TOPIC])
    found = len(consumer.consume(400, timeout=30))
    consumer.commit(asynchronous=False)
    consumer.close()
    tools.check(found == 400, "a group reads", f"{found} of 400")
    tools.expect(r"orders:0:100", "GetOffsetShell", "--topic", TOPIC)
    groups = "consumer.group.ConsumerGroupCommand"
    tools.expect(r"tools\s+orders\s+\d\s+100\s+100\s+0", groups, "--describe", "--group", "tools")
    tools.expect("tools", "GroupsCommand", "--list")
    path = tools.write("delete.json", {"version": 1, "partitions": [{"topic": TOPIC, "partition": 1, "offset": 40}]})
    tools.expect(r"orders-1\s+low_watermark: 40", "DeleteRecordsCommand", "--offset-json-file", path)


def configs(tools: Tools) -> None:
    command = "kafka.admin.ConfigCommand"
    tools.expect("retention.ms=86400000", command, "--describe", "--topic", TOPIC)
    tools.expect("Completed updating", command, "--alter", "--topic", TOPIC, "--add-config", "retention.ms=3600000")
    tools.expect("retention.ms=3600000", command, "--describe", "--topic", TOPIC)
    tools.expect("Completed updating", command, "--alter", "--topic", TOPIC, "--delete-config", "retention.ms")
    tools.expect(
        "Completed updating", command, "--alter", "--broker-defaults", "--add-config", "message.max.bytes=2000000"
    )
    tools.expect("message.max.bytes=2000000", command, "--describe", "--broker-defaults")
    tools.expect("message.max.bytes=2000000", command, "--describe", "--broker", "2", "--all")


def reassignment(tools: Tools) -> None:
    command = "reassign.ReassignPartitionsCommand"
    wanted = tools.write("topics.json", {"version": 1, "topics": [{"topic": TOPIC}]})
    output = tools.run(command, "--generate", "--topics-to-move-json-file", wanted, "--broker-list", "1,2,3")
    proposal = output[output.index("Proposed partition reassignment configuration") :].split("\n", 1)[1]
    tools.check(TOPIC in proposal, "kafka-reassign-partitions --generate", output)
    moves = [{"topic": TOPIC, "partition": 0, "replicas": [2, 1], "log_dirs": ["any", "any"]}]
    plan = tools.write("plan.json", {"version": 1, "partitions": moves})
    tools.expect(
        "Successfully started", command, "--execute", "--reassignment-json-file", plan, "--throttle", "50000000"
    )
    tools.wait("the reassignment ends", lambda: set(tools.describe(TOPIC)[0]["Replicas"].split(",")) == {"2", "1"})
    tools.expect("complete", command, "--verify", "--reassignment-json-file", plan)
    output = tools.run("kafka.admin.ConfigCommand", "--describe", "--topic", TOPIC)
    tools.check("throttled" not in output, "--verify takes the throttle away", output)
    tools.expect("No partition reassignments found", command, "--list")
    tools.expect("cancel|None of the specified", command, "--cancel", "--reassignment-json-file", plan)


def folders(tools: Tools) -> None:
    """One replica moves to the other folder of its broker; the others stay."""
    command = "reassign.ReassignPartitionsCommand"
    row = tools.describe(TOPIC)[2]
    replicas, node = [int(each) for each in row["Replicas"].split(",")], int(row["Leader"])
    target = next(str(each) for each in tools.cluster.data_folders(node) if str(each) != _folder_of(tools, node, 2))
    chosen = [target if each == node else "any" for each in replicas]
    moves = [{"topic": TOPIC, "partition": 2, "replicas": replicas, "log_dirs": chosen}]
    plan = tools.write("folders.json", {"version": 1, "partitions": moves})
    throttle = ("--replica-alter-log-dirs-throttle", "10000000")
    tools.expect("started moving log directory", command, "--execute", "--reassignment-json-file", plan, *throttle)
    tools.wait("kafka-reassign-partitions moves a replica", lambda: _folder_of(tools, node, 2) == target)
    done = f"replica {TOPIC}-2-{node} completed successfully"
    tools.expect(done, command, "--verify", "--reassignment-json-file", plan)


def _folder_of(tools: Tools, node: int, partition: int) -> str:
    output = tools.run("LogDirsCommand", "--describe", "--topic-list", TOPIC, "--broker-list", str(node))
    (broker,) = json.loads(output[output.index("{") : output.rindex("}") + 1])["brokers"]
    for folder in broker["logDirs"]:
        for each in folder["partitions"]:
            if each["partition"] == f"{TOPIC}-{partition}" and not each["isFuture"]:
                return str(folder["logDir"])
    return ""


def elections(tools: Tools) -> None:
    leader = tools.cluster.leader_of(TOPIC, 1)
    tools.cluster.restart(leader)
    tools.wait(
        "all replicas are in sync again",
        lambda: all(len(row["Isr"].split(",")) == len(row["Replicas"].split(",")) for row in tools.describe(TOPIC)),
    )
    election = "LeaderElectionCommand"
    tools.run(election, "--election-type", "preferred", "--all-topic-partitions")
    rows = tools.describe(TOPIC)
    tools.check(all(row["Leader"] == row["Replicas"].split(",")[0] for row in rows), "kafka-leader-election", str(rows))
    tools.expect("not needed|already", election, "--election-type", "preferred", "--topic", TOPIC, "--partition", "1")


def quorum(tools: Tools) -> None:
    command = "MetadataQuorumCommand"
    tools.expect(r"LeaderId:\s+[123]", command, "describe", "--status")
    output = tools.expect(r"Follower", command, "describe", "--replication")
    lag = [int(row[3]) for row in re.findall(r"^(\d+)\s+(\S+)\s+(\d+)\s+(\d+)", output, re.MULTILINE)]
    tools.check(len(lag) == 3, "three voters", output)
    active = tools.cluster.controller()
    node = next(number for number in (1, 2, 3) if number != active)
    folder = tools.cluster.folder / f"node-{node}"
    directory_id = re.search(r"directory\.id=(\S+)", (folder / "meta.properties").read_text())
    assert directory_id is not None
    removal = ("--controller-id", str(node), "--controller-directory-id", directory_id[1])
    tools.expect(r"Removed\s+KRaft controller", command, "remove-controller", *removal)
    tools.wait("a voter is removed", lambda: _role(tools, node) == "Observer")
    settings = str(tools.cluster.folder / f"node-{node}.properties")
    tools.expect("Added controller", command, "--command-config", settings, "add-controller")
    tools.wait("a voter is added", lambda: _role(tools, node) == "Follower")


def _role(tools: Tools, node: int) -> str:
    output = tools.run("MetadataQuorumCommand", "describe", "--replication")
    found = re.search(rf"^{node}\s.*?(\w+)\s*$", output, re.MULTILINE)
    return found[1] if found is not None else ""


def cluster(tools: Tools) -> None:
    tools.expect(r"Cluster ID: \S{22}", "ClusterTool", "cluster-id", server_last=True)
    tools.expect(r"127\.0\.0\.1", "ClusterTool", "list-endpoints", server_last=True)
    tools.expect(r"metadata\.version", "FeatureCommand", "describe")
    tools.expect(r'"partition":"orders-1"', "LogDirsCommand", "--describe", "--topic-list", TOPIC)
    tools.expect(r"Produce\(0\)", "BrokerApiVersionsCommand")


def deletion(tools: Tools) -> None:
    tools.run("TopicCommand", "--delete", "--topic", TOPIC)
    tools.wait("the topic is deleted", lambda: TOPIC not in tools.run("TopicCommand", "--list").split())


CHECKS = (topics, data, configs, cluster, reassignment, folders, elections, quorum, deletion)


def run(*wanted: str) -> bool:
    reason = unavailable()
    if reason is not None:
        print(f"tools: skipped, {reason}")
        return True
    with tempfile.TemporaryDirectory() as folder, EmbeddedCluster(brokers=3, folders=2) as running:
        tools = Tools(running, Path(folder))
        for check in CHECKS:
            if not wanted or check.__name__ in wanted:
                tools.attempt(check)
    print(f"tools: {'FAILED' if tools.failures else 'passed'}, {tools.passed} checks")
    return not tools.failures


if __name__ == "__main__":
    sys.exit(0 if run(*sys.argv[1:]) else 1)
