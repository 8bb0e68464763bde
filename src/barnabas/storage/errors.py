"""Exceptions of logs, after failures of the disk."""

from __future__ import annotations

import errno

from barnabas.model.ports import DiskError, FileMissing

_GONE = frozenset({errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE})
"""A file system turns read-only when its disk fails; the others say that there is no such device any more."""


def is_gone(problem: DiskError) -> bool:
    """Whether the disk is not there to be written to, now or later; a full one may have room again."""
    return isinstance(problem, FileMissing) or getattr(problem.cause, "errno", None) in _GONE


class LogOffline(Exception):
    """The log can no longer promise anything: a sync failed, or a torn write could not be cut off.

    After a failed fsync the kernel may have dropped the dirty pages, so a retry that succeeds proves nothing.
    Every later call raises this until the process has reopened, and so recovered, the log.
    """

    def __init__(self, log: str, reason: str) -> None:
        super().__init__(f"{log} is offline: {reason}")
        self.log = log
        self.reason = reason
