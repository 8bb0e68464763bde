"""File descriptors: the limit of the process, divided between connections and log files."""

from __future__ import annotations

import contextlib
import resource

RESERVED = 64
"""For listeners, checkpoints, folders being synced, the standard streams."""


def raise_limit() -> None:
    """As many as the system allows. Only for a process of our own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shares(wanted_files: int) -> tuple[int, int]:
    """(descriptors for log files, descriptors for connections) of what the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    available = max(soft - RESERVED, 32)
    files = min(wanted_files or available // 2, max(available - 16, 16))
    return files, max(available - files, 16)
