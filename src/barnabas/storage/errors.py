"""Exceptions of logs, after failures of the disk."""

from __future__ import annotations


class LogOffline(Exception):
    """The log can no longer promise anything: a sync failed, or a torn write could not be cut off.

    After a failed fsync the kernel may have dropped the dirty pages, so a retry that succeeds proves nothing.
    Every later call raises this until the process has reopened, and so recovered, the log.
    """

    def __init__(self, log: str, reason: str) -> None:
        super().__init__(f"{log} is offline: {reason}")
        self.log = log
        self.reason = reason
