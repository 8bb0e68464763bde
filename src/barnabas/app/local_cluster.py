"""A cluster of processes on this machine, for trying it out and for tests.

Everything is in one folder: ``cluster.json`` says which nodes there are and where they listen; each node has its
settings (``node-1.properties``), its data (``node-1/``), its output (``node-1.log``) and, while it runs, its process id
(``node-1.pid``). So commands in other terminals find the nodes too. ``up.lock`` is locked by the process that keeps the
cluster up.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from barnabas.app import settings_loader, storage_tool
from barnabas.model.errors import StartError
from barnabas.model.ids import uuid_text
from barnabas.net.local_ports import accepts, free_ports, is_free
from barnabas.node.format import random_uuid

DESCRIPTION = "cluster.json"
UP_LOCK = "up.lock"
FIRST_PORT = 9092
CONTROLLER_PORT_DISTANCE = 10_000
MAX_PORT = 65_535
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
PAUSE_TIMEOUT_S = 5.0
LOOK_S = 0.02


class LocalNode(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    host: str
    port: int
    controller_port: int
    advertised_port: int
    """Where clients and other brokers connect: the same port unless a proxy stands before it."""
    advertised_controller_port: int
    directory_id: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.advertised_port}"


class Description(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    nodes: list[LocalNode]


class LocalCluster:
    def __init__(self, folder: Path, description: Description) -> None:
        self.folder = folder
        self.cluster_id = description.cluster_id
        self.nodes = {node.node_id: node for node in description.nodes}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    # Making and finding

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        brokers: int,
        settings: Mapping[str, str],
        folders: int = 1,
        host: str = "127.0.0.1",
        hosts: Sequence[str] | None = None,
        ports: Sequence[tuple[int, int]] | None = None,
        advertised: Sequence[tuple[int, int]] | None = None,
    ) -> LocalCluster:
        """``ports`` are (for clients, for controllers) of each node; ``advertised`` those of proxies before them.

        ``hosts`` gives each node an address of its own, ``folders`` several data folders. Raises StartError.
        """
        ports = ports or choose_ports(host, brokers)
        shown = advertised or ports
        generator = random.SystemRandom()
        nodes = [
            LocalNode(
                node_id=number + 1,
                host=host if hosts is None else hosts[number],
                port=ports[number][0],
                controller_port=ports[number][1],
                advertised_port=shown[number][0],
                advertised_controller_port=shown[number][1],
                directory_id=uuid_text(random_uuid(generator)),
            )
            for number in range(brokers)
        ]
        description = Description(cluster_id=uuid_text(random_uuid(generator)), nodes=nodes)
        cluster = cls(folder, description)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for node in nodes:
                cluster.settings_path(node.node_id).write_text(cluster._settings_of(node, settings, folders))
                cluster._format(node)
            (folder / DESCRIPTION).write_bytes(msgspec.json.format(msgspec.json.encode(description), indent=2))
        except OSError as problem:
            raise StartError(
                f"Cannot make a cluster in {folder}: {(problem.strerror or str(problem)).lower()}."
            ) from None
        return cluster

    @classmethod
    def open(cls, folder: Path) -> LocalCluster:
        """Raises StartError."""
        try:
            return cls(folder, msgspec.json.decode((folder / DESCRIPTION).read_bytes(), type=Description))
        except (OSError, msgspec.MsgspecError) as problem:
            reason = "it has no cluster.json" if isinstance(problem, FileNotFoundError) else str(problem)
            raise StartError(f"There is no cluster in {folder}: {reason}.") from None

    @staticmethod
    def exists(folder: Path) -> bool:
        return (folder / DESCRIPTION).exists()

    def configure(self, settings: Mapping[str, str]) -> None:
        """Changes settings of every node, from its next start on. Raises StartError."""
        settings_loader.load(given=settings.items())  # checks them
        for node_id in self.nodes:
            path = self.settings_path(node_id)
            texts = {**settings_loader.parse_properties(path.read_text()), **settings}
            path.write_text("".join(f"{key}={value}\n" for key, value in texts.items()))

    def lock(self) -> bool:
        """Takes the lock of the process that keeps the cluster up, for as long as this process lives."""
        lock = os.open(self.folder / UP_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        return True

    def keeper(self) -> int | None:
        """The process that keeps the cluster up."""
        try:
            with (self.folder / UP_LOCK).open() as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(lock.read())
        except (OSError, ValueError):
            return None
        return None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def controller_servers(self) -> str:
        return ",".join(f"{node.host}:{node.advertised_controller_port}" for node in self.nodes.values())

    def settings_path(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.properties"

    def log_path(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.log"

    def _pid_path(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.pid"

    def data_folders(self, node_id: int, count: int) -> list[Path]:
        """``node-1``, which has the metadata, then ``node-1-2`` and so on."""
        names = [f"node-{node_id}", *(f"node-{node_id}-{number}" for number in range(2, count + 1))]
        return [(self.folder / name).absolute() for name in names]

    def _settings_of(self, node: LocalNode, settings: Mapping[str, str], folders: int) -> str:
        replicas = str(min(3, len(self.nodes)))
        values = {
            "node.id": str(node.node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{node.host}:{node.port},CONTROLLER://{node.host}:{node.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{node.host}:{node.advertised_port},"
            f"CONTROLLER://{node.host}:{node.advertised_controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controller_servers,
            "log.dirs": ",".join(map(str, self.data_folders(node.node_id, folders))),
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "min.insync.replicas": "2" if len(self.nodes) > 2 else "1",
            **settings,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def _format(self, node: LocalNode) -> None:
        voters = ",".join(
            f"{each.node_id}@{each.host}:{each.advertised_controller_port}:{each.directory_id}"
            for each in self.nodes.values()
        )
        plan = storage_tool.plan(
            config=str(self.settings_path(node.node_id)),
            cluster_id=self.cluster_id,
            standalone=False,
            initial_controllers=voters,
            features=(),
            release_version=None,
            has_choice=True,
        )
        storage_tool.carry_out(plan, ignore_formatted=False)

    # Processes

    def start(self, node_id: int, under: Sequence[str] = ()) -> None:
        """Starts the process and returns at once. ``under`` is put before the command: ``ip netns exec``, say."""
        if self.is_running(node_id):
            return
        with self.log_path(node_id).open("ab") as output:
            process = subprocess.Popen(
                [*under, sys.executable, "-m", "barnabas", "serve", "--config", str(self.settings_path(node_id))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[node_id] = process
        self._pid_path(node_id).write_text(str(process.pid))

    def start_all(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts every node and waits until each accepts clients. Raises StartError."""
        for node_id in self.nodes:
            self._check_ports(node_id)
        for node_id in self.nodes:
            self.start(node_id)
        for node_id in self.nodes:
            self.wait_for(node_id, timeout_s)

    def _check_ports(self, node_id: int) -> None:
        node = self.nodes[node_id]
        taken = [port for port in (node.port, node.controller_port) if not is_free(node.host, port)]
        if taken and not self.is_running(node_id):
            raise StartError(f"Another process has port {taken[0]}, which node {node_id} in {self.folder} listens on.")

    def wait_for(self, node_id: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until the node accepts clients: it is unfenced then. Raises StartError."""
        node = self.nodes[node_id]
        deadline_s = time.monotonic() + timeout_s
        while not accepts(node.host, node.port):
            if not self.is_running(node_id):
                raise StartError(f"Node {node_id} does not run: {self._last_words(node_id)}")
            if time.monotonic() >= deadline_s:
                raise StartError(f"Node {node_id} does not serve after {timeout_s:.0f} s: {self._last_words(node_id)}")
            time.sleep(LOOK_S)

    def _last_words(self, node_id: int) -> str:
        try:
            lines = self.log_path(node_id).read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it has written nothing"

    def pid(self, node_id: int) -> int | None:
        """Of the running process; None where there is none."""
        process = self._processes.get(node_id)
        if process is not None and process.poll() is None:
            return process.pid
        self._processes.pop(node_id, None)  # another process may have started the node again
        try:
            pid = int(self._pid_path(node_id).read_text())
        except (OSError, ValueError):
            return None
        return pid if _is_ours(pid, str(self.settings_path(node_id))) else None

    def is_running(self, node_id: int) -> bool:
        return self.pid(node_id) is not None

    def is_paused(self, node_id: int) -> bool:
        pid = self.pid(node_id)
        return pid is not None and _process_state(pid).startswith("T")

    def signal(self, node_id: int, number: int) -> bool:
        """False where the node does not run."""
        pid = self.pid(node_id)
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self, node_id: int) -> None:
        """kill -9, and waits for the end."""
        if self.signal(node_id, signal.SIGKILL):
            self.wait_for_end(node_id)

    def stop(self, node_id: int, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """A clean stop, which hands over leadership; kills where it takes too long."""
        if self.signal(node_id, signal.SIGTERM) and not self.wait_for_end(node_id, timeout_s):
            self.kill(node_id)

    def stop_all(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """All at once: nobody is left to take over."""
        running = [node_id for node_id in self.nodes if self.signal(node_id, signal.SIGTERM)]
        for node_id in running:
            self.signal(node_id, signal.SIGCONT)
            if not self.wait_for_end(node_id, timeout_s):
                self.kill(node_id)

    def pause(self, node_id: int) -> None:
        """Returns when the process stands still."""
        deadline_s = time.monotonic() + PAUSE_TIMEOUT_S
        if self.signal(node_id, signal.SIGSTOP):
            while self.is_running(node_id) and not self.is_paused(node_id) and time.monotonic() < deadline_s:
                time.sleep(LOOK_S)

    def resume(self, node_id: int) -> None:
        self.signal(node_id, signal.SIGCONT)

    def wait_for_end(self, node_id: int, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while self.is_running(node_id):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(LOOK_S)
        self._pid_path(node_id).unlink(missing_ok=True)
        return True


def _is_ours(pid: int, settings_path: str) -> bool:
    """Whether the process is the node's, and not another that has got its number since."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return not Path("/proc/self").exists()  # a system without /proc: the number has to do
    return not _process_state(pid).startswith("Z") and settings_path in command


def _process_state(pid: int) -> str:
    """The letter of ps: T for a process that is paused, Z for one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        found = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return found.stdout.strip() or "Z"


def choose_ports(host: str, count: int, first: int | None = None) -> list[tuple[int, int]]:
    """(for clients, for controllers) of each node: ``first`` and up; without it 9092 and up where free, else any.

    Raises StartError.
    """
    begin = FIRST_PORT if first is None else first
    distance = CONTROLLER_PORT_DISTANCE if begin + CONTROLLER_PORT_DISTANCE + count <= MAX_PORT else count
    wanted = [(begin + number, begin + distance + number) for number in range(count)]
    taken = [port for pair in wanted for port in pair if port > MAX_PORT or not is_free(host, port)]
    if not taken:
        return wanted
    if first is not None:
        reason = f"ports end at {MAX_PORT}" if taken[0] > MAX_PORT else "another process listens there"
        raise StartError(f"Cannot use port {taken[0]} of {host}: {reason}. Choose another with --port.")
    found = free_ports(host, 2 * count)
    return list(zip(found[:count], found[count:], strict=True))
