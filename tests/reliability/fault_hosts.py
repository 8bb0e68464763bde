"""Where the brokers of a fault run live, and how the network between them is cut.

``NamespaceHosts`` (root): one network namespace per broker and one for the clients, on a bridge; links are cut with
iptables, so packets are dropped as by a broken switch. ``ProxyHosts``: everything on 127.0.0.1, with a proxy before
each broker that holds back what crosses a cut link. A link is (sender, receiver); 0 stands for the clients.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from barnabas.app.link_proxy import CLIENT, LinkProxy
from barnabas.app.local_cluster import LocalCluster
from barnabas.net.local_ports import free_ports

BROKERS = (1, 2, 3)
Link = tuple[int, int]
CLONE_NEWNET = 0x40000000


class Hosts(Protocol):
    def create(self, folder: Path, settings: dict[str, str]) -> LocalCluster: ...

    def start(self, cluster: LocalCluster, node_id: int) -> None:
        """Starts the process where it belongs and returns at once."""

    def cut(self, links: Iterable[Link]) -> None: ...

    def heal(self) -> None: ...

    def close(self) -> None: ...


class ProxyHosts:
    def __init__(self) -> None:
        self._proxy: LinkProxy | None = None

    def create(self, folder: Path, settings: dict[str, str]) -> LocalCluster:
        self.close()
        proxy = self._proxy = LinkProxy("127.0.0.1")
        found = free_ports("127.0.0.1", 2 * len(BROKERS))
        ports = list(zip(found[: len(BROKERS)], found[len(BROKERS) :], strict=True))
        shown = [
            (proxy.listen(node, one), proxy.listen(node, two)) for node, (one, two) in zip(BROKERS, ports, strict=True)
        ]
        return LocalCluster.create(folder, brokers=len(BROKERS), settings=settings, ports=ports, advertised=shown)

    def start(self, cluster: LocalCluster, node_id: int) -> None:
        cluster.start(node_id)

    def cut(self, links: Iterable[Link]) -> None:
        assert self._proxy is not None
        self._proxy.cut(links)

    def heal(self) -> None:
        if self._proxy is not None:
            self._proxy.heal()

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.heal()
            self._proxy.close()
            self._proxy = None


def unavailable() -> str | None:
    """Why namespaces cannot be made here."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    name = f"barnabas-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespace: {made.stderr.strip()}"
    try:
        rule = subprocess.run(
            ["ip", "netns", "exec", name, "iptables", "-L"], capture_output=True, text=True, check=False
        )
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return f"iptables does not work: {rule.stderr.strip()}" if rule.returncode else None


class NamespaceHosts:
    """The clients' namespace holds the bridge. This process enters it, so that its clients are on the bridge too."""

    def __init__(self) -> None:
        self._prefix = f"barnabas-{os.getpid()}"
        self._names: list[str] = []
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        middle = self._add_namespace(CLIENT)
        self._in(CLIENT, "ip", "link", "add", "bridge", "type", "bridge")
        self._in(CLIENT, "ip", "address", "add", f"{_address(CLIENT)}/24", "dev", "bridge")
        self._in(CLIENT, "ip", "link", "set", "bridge", "up")
        for node in BROKERS:
            name = self._add_namespace(node)
            port = f"port{node}"
            self._in(CLIENT, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            self._in(CLIENT, "ip", "link", "set", port, "master", "bridge", "up")
            self._in(node, "ip", "address", "add", f"{_address(node)}/24", "dev", "eth0")
            self._in(node, "ip", "link", "set", "eth0", "up")
        _enter(f"/run/netns/{middle}")

    def _add_namespace(self, node: int) -> str:
        name = self._name(node)
        subprocess.run(["ip", "netns", "add", name], check=True)
        self._names.append(name)
        self._in(node, "ip", "link", "set", "lo", "up")
        return name

    def _name(self, node: int) -> str:
        return f"{self._prefix}-{node or 'clients'}"

    def _in(self, node: int, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", self._name(node), *command], check=True)

    def create(self, folder: Path, settings: dict[str, str]) -> LocalCluster:
        return LocalCluster.create(
            folder,
            brokers=len(BROKERS),
            settings=settings,
            hosts=[_address(node) for node in BROKERS],
            ports=[(9092, 9093)] * len(BROKERS),
        )

    def start(self, cluster: LocalCluster, node_id: int) -> None:
        cluster.start(node_id, under=["ip", "netns", "exec", self._name(node_id)])

    def cut(self, links: Iterable[Link]) -> None:
        """Each rule stands in a broker's namespace; the sender's, unless that is a client."""
        for sender, receiver in links:
            if sender == CLIENT:
                self._in(receiver, "iptables", "-w", "-A", "INPUT", "-s", _address(sender), "-j", "DROP")
            else:
                self._in(sender, "iptables", "-w", "-A", "OUTPUT", "-d", _address(receiver), "-j", "DROP")

    def heal(self) -> None:
        for node in BROKERS:
            self._in(node, "iptables", "-w", "-F")

    def close(self) -> None:
        """The devices go with their namespaces."""
        _enter_descriptor(self._home)
        while self._names:
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run(["ip", "netns", "del", self._names.pop()], check=True)


def _address(node: int) -> str:
    return f"10.77.0.{node or 100}"


def _enter(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _enter_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _enter_descriptor(descriptor: int) -> None:
    """For this thread and all that it starts. Python has os.setns from 3.12 on."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
