"""Power cuts of a whole cluster: the data of each broker is on an ext4 image of its own.

All three processes are stopped where they stand and the images are copied: the copies hold what had reached the disks
and nothing of what was only in memory. The brokers then start on the copies, and the clients go on. Every append is
flushed before it is acknowledged.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from barnabas.app.local_cluster import LocalCluster
from tests.reliability import power
from tests.reliability.fault_hosts import BROKERS, Hosts
from tests.reliability.fault_kinds import POWER, Fault, Injector
from tests.reliability.fault_view import ClusterView

SETTINGS = {"log.flush.interval.messages": "1"}
IMAGE_BYTES = 512 << 20

unavailable = power.unavailable
MakeInjector = Callable[[LocalCluster, Hosts, ClusterView], Injector]


@contextmanager
def disks(folder: Path, wanted: bool) -> Iterator[MakeInjector]:
    """Puts an image under each node's folder, where that is wanted."""
    if not wanted:
        yield Injector
        return
    images = {node: _Disk(folder, node) for node in BROKERS}
    try:
        yield lambda cluster, hosts, view: _PowerInjector(cluster, hosts, view, images)
    finally:
        for disk in images.values():
            disk.close()


class _Disk:
    """``node-N`` is a link to a folder on the image, which changes with each cut."""

    def __init__(self, folder: Path, node: int) -> None:
        self._folder = folder
        self._node = node
        self._number = 0
        self._mounts = ExitStack()
        power.make_image(self._image, IMAGE_BYTES)
        self._mount()
        (folder / f"node-{node}").symlink_to(folder / f"disk-{node}" / "data")
        (folder / f"disk-{node}" / "data").mkdir()

    @property
    def _image(self) -> Path:
        return self._folder / f"image-{self._node}-{self._number}"

    def _mount(self) -> None:
        self._mounts.enter_context(power.mounted(self._image, self._folder / f"disk-{self._node}"))

    def copy(self) -> None:
        """What has reached the disk so far; the file system is in use."""
        before = self._image
        self._number += 1
        subprocess.run(["cp", "--sparse=always", before, self._image], check=True)

    def replace(self) -> None:
        """Mounts the copy in place of the original, which nobody uses any more."""
        self._mounts.close()
        (self._folder / f"image-{self._node}-{self._number - 1}").unlink()
        self._mount()

    def close(self) -> None:
        self._mounts.close()


class _PowerInjector(Injector):
    def __init__(self, cluster: LocalCluster, hosts: Hosts, view: ClusterView, images: dict[int, _Disk]) -> None:
        super().__init__(cluster, hosts, view)
        self._images = images

    def carry_out(self, fault: Fault, victim: int) -> None:
        if fault.kind != POWER:
            super().carry_out(fault, victim)
            return
        for node in BROKERS:
            self._cluster.signal(node, signal.SIGSTOP)
        for disk in self._images.values():
            disk.copy()
        for node in BROKERS:
            self._cluster.kill(node)
        for disk in self._images.values():
            disk.replace()
        time.sleep(fault.duration_s)
        for node in BROKERS:
            self._hosts.start(self._cluster, node)
