"""Cuts of power under load: ``python -m tests.reliability.power --rounds 50`` (as root, with loop devices).

The data folder is on an ext4 image. In the middle of the load the broker is stopped where it stands and the image is
copied: the copy holds what had reached the disk, and nothing of what was only in memory. A broker that starts on the
copy must have every message that was acknowledged before.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.reliability.load import Load, verify
from tests.reliability.process import BrokerProcess

IMAGE_BYTES = 192 << 20


def unavailable() -> str | None:
    """Why this cannot be run here."""
    if os.geteuid() != 0:
        return "only root can mount"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder, "probe")
        make_image(image, 8 << 20)
        Path(folder, "at").mkdir()
        result = subprocess.run(
            ["mount", "-o", "loop", image, f"{folder}/at"], capture_output=True, text=True, check=False
        )
        if result.returncode:
            return f"no loop device: {result.stderr.strip()}"
        subprocess.run(["umount", f"{folder}/at"], check=True)
    return None


def make_image(path: Path, size: int) -> None:
    with open(path, "wb") as stream:
        stream.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True)
    try:
        yield at
    finally:
        for _ in range(50):
            if subprocess.run(["umount", at], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", at], check=False)


def cut_once(folder: Path, chance: random.Random, *, durable: bool = True) -> int:
    """One load, one cut, one look. Returns how many messages were acknowledged."""
    image, copy = folder / "disk", folder / "copy"
    make_image(image, IMAGE_BYTES)
    arguments = ["--durable"] if durable else []
    with mounted(image, folder / "before") as at:
        broker = BrokerProcess(at / "data", *arguments, "--set", "log.segment.bytes=1048576").start()
        try:
            load = Load(broker.bootstrap_servers, settings={"log_level": 0})
            load.start()
            deadline = time.monotonic() + chance.uniform(0.3, 1.5)
            attempt = 0
            while time.monotonic() < deadline:
                load.create_topic(f"topic-{attempt}", str(attempt + 1))
                attempt += 1
            broker.signal(signal.SIGSTOP)
            promises = load.abandon()
            subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        finally:
            broker.kill()
    with mounted(copy, folder / "after") as at, BrokerProcess(at / "data", *arguments) as survivor:
        verify(survivor.bootstrap_servers, promises, complete=False)
    return promises.count


def run(rounds: int, seed: int, *, durable: bool = True, quiet: bool = False) -> int:
    chance = random.Random(seed)
    total = 0
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="barnabas-power-") as folder:
            total += cut_once(Path(folder), chance, durable=durable)
        if not quiet:
            print(f"cut {number + 1} of {rounds}: {total} acknowledged in all, none lost", flush=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--without-sync", action="store_true", help="leave --durable out, to see that losses are found")
    options = parser.parse_args()
    reason = unavailable()
    if reason is not None:
        raise SystemExit(f"power cuts cannot be made here: {reason}")
    print(f"seed {options.seed}")
    count = run(options.rounds, options.seed, durable=not options.without_sync)
    print(f"{options.rounds} cuts: {count} acknowledged messages, none lost")


if __name__ == "__main__":
    main()
